"""The page of the workbench in a real browser: the map, search, colours, and what once went wrong."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import csml
from browser import Visit
from csml.explorer.explore import Explorer
from runs_to_show import NASTY
from workbench_page import SCRIPT, focused, go_to, place, settled, slow_down, unexpected, until, wait_for_labels

pytest_plugins = "workbench_fixtures"


def test_a_click_shows_the_image_and_its_neighbours_and_marks_them(served: Explorer, visit: Visit) -> None:
    page = visit.page
    settled(page)
    page.mouse.move(*place(page, 7))
    page.wait_for_selector("#tip[data-id='7']")
    assert focused(page) != 7  # the large picture stays that of the list until a click
    page.mouse.click(*place(page, 7))
    page.wait_for_selector("#detail[data-id='7'] .words")
    until(page, "() => document.getElementById('list-title').textContent.includes('07-crescent.png')")
    neighbors = page.evaluate("csmlPage.model.list")
    assert len(neighbors) == 58 and 7 not in neighbors  # all others that can be read
    assert page.get_attribute("#tab-neighbors", "aria-selected") == "true"
    page.mouse.move(*place(page, neighbors[0]))
    assert focused(page) == 7
    assert unexpected(visit) == []


def test_a_picture_may_be_dropped_anywhere(flat: Path, visit: Visit) -> None:
    page = visit.page
    transfer = page.evaluate_handle(
        """bytes => { const transfer = new DataTransfer();
            transfer.items.add(new File([new Uint8Array(bytes)], "dropped.png")); return transfer; }""",
        list((flat / "photos/04-crescent.png").read_bytes()),
    )
    for spot in ("header", "#map", "#gallery"):
        page.evaluate("csmlPage.model.list = []")
        page.dispatch_event(spot, "dragover", {"dataTransfer": transfer})
        page.dispatch_event(spot, "drop", {"dataTransfer": transfer})
        until(page, "() => csmlPage.model.list[0] === 4")
    page.click("#more-like")
    page.wait_for_selector("text=2 like, 0 unlike")
    until(page, "() => csmlPage.model.list.length && csmlPage.model.list[0] !== 4")
    page.click("#less-like")
    page.wait_for_selector("text=2 like, 1 unlike")
    page.fill("#find", "07-")
    page.keyboard.press("Enter")
    until(page, "() => csmlPage.model.list.length === 1 && csmlPage.model.list[0] === 7")
    assert page.url.startswith("http://127.0.0.1") and unexpected(visit) == []


def test_script_in_names_runs_nothing(served: Explorer, visit: Visit) -> None:
    page = visit.page
    page.click("#tab-search")
    page.fill("#find", "onerror")
    page.keyboard.press("Enter")
    until(page, "() => csmlPage.model.list.length === 1")
    until(page, "() => document.getElementById('detail').textContent.includes('onerror')")
    page.fill("#label", SCRIPT)
    page.keyboard.press("Enter")
    wait_for_labels(page, 1)
    page.fill("#tag", SCRIPT)
    page.click("#give-tag")
    until(page, "() => document.getElementById('detail').textContent.includes('tags')")
    for tab in ("queue", "selection", "clean", "neighbors"):
        page.click(f"#tab-{tab}")
    page.click("#history-menu summary")
    page.wait_for_selector("#history li")
    assert SCRIPT in page.text_content("#legend") and SCRIPT in page.text_content("#words")
    assert page.text_content("#title") == f"{SCRIPT}: 60 images" and SCRIPT in page.text_content("#command")
    page.select_option("#by", label=SCRIPT)  # a column, and a class in it
    until(page, "script => document.getElementById('legend').textContent.includes(script)", SCRIPT)
    assert page.locator("img[src=x]").count() == 0
    assert served.labels == {NASTY: SCRIPT} and served.tags == {NASTY: [SCRIPT]}
    assert unexpected(visit) == []
    own = served.address.split("?")[0]
    assert all(url.startswith((own, "data:", "blob:")) for url in visit.requests)


def test_a_banner_says_that_the_server_is_gone(flat: Path, visit: Visit) -> None:
    explorer = csml.explore(flat / SCRIPT, port=0, browser=False)
    go_to(visit, explorer)
    explorer._workbench.label({0: "kept"}, "ask")
    explorer.stop()
    assert (flat / SCRIPT / "explore/labels.csv").read_text().splitlines()[1:] == ["00-arrow.png,kept"]
    visit.page.keyboard.type("lost")
    visit.page.keyboard.press("Enter")
    visit.page.wait_for_selector("#gone:not([hidden])")
    assert "The server has stopped" in visit.page.text_content("#gone")
    assert "labels.csv" in visit.page.text_content("#gone")


def test_thumbnails_of_another_run_at_the_same_port_are_not_shown(flat: Path, visit: Visit) -> None:
    """The port is the same at every start, and a browser keeps what it was given for an hour."""
    seen: list[set[str]] = []
    port = 0
    for _ in range(2):
        explorer = csml.explore(flat / SCRIPT, port=port, browser=False)
        try:
            go_to(visit, explorer)
            until(visit.page, "() => document.querySelectorAll('.tile img').length > 0")
            seen.append(set(sources(visit.page)))
            port = int(explorer.address.split(":")[2].split("/")[0])
        finally:
            explorer.stop()
    assert len(seen[0]) == len(seen[1]) == 12 and not seen[0] & seen[1]


def test_a_tab_of_another_run_at_the_same_port_labels_nothing(flat: Path, visit: Visit) -> None:
    """Its images have other numbers, and the cookie of the run that is served now."""
    page = visit.page
    explorer = csml.explore(flat / SCRIPT, port=0, browser=False)
    port = int(explorer.address.split(":")[2].split("/")[0])
    go_to(visit, explorer)
    explorer.stop()
    explorer = csml.explore(flat / SCRIPT, port=port, browser=False)
    try:
        page.context.request.get(explorer.address)  # opened in another tab, which leaves the cookie
        page.keyboard.type("for another image")
        page.keyboard.press("Enter")
        until(page, "() => document.getElementById('gone').textContent.includes('reload this page')")
        assert explorer.labels == {}
        page.reload()
        page.wait_for_selector("body[data-drawn=yes]")
        assert page.is_hidden("#gone")
    finally:
        explorer.stop()


def sources(page: Any) -> list[str]:
    """Addresses of the images in the list."""
    return list(page.locator(".tile img").evaluate_all("all => all.map(image => image.src)"))


def test_an_answer_that_comes_late_does_not_replace_another_list(visit: Visit) -> None:
    page = visit.page
    until(page, "() => csmlPage.model.list.length === 12")
    queue = page.evaluate("csmlPage.model.list")
    slow_down(page, "similar", 600)
    page.click("#more-like")
    page.click("#tab-queue")
    until(page, "() => window.late")
    page.wait_for_timeout(200)
    assert page.evaluate("csmlPage.model.list") == queue
    assert page.get_attribute("#tab-queue", "aria-selected") == "true"


def test_an_image_that_cannot_be_read_says_so(served: Explorer, visit: Visit) -> None:
    page = visit.page
    page.click("#tab-clean")
    page.select_option("#clean-kind", "unreadable")
    page.wait_for_selector(".tile .broken")
    assert page.text_content(".tile .broken") == "cannot be read"
    page.click("#tag-found")
    until(page, "() => csmlPage.model.state.tags.unreadable === 1")
    page.click("#show-neighbors")
    page.wait_for_selector("text=It cannot be read, so it has no neighbours.")
    page.keyboard.press("*")
    page.wait_for_selector("#viewer .broken")


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1440, "light")])
def test_nothing_is_wider_than_the_screen(visit: Visit, width: int, scheme: str) -> None:
    page = visit.page
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 844})
    for tab in ("queue", "selection", "neighbors", "search", "clean"):
        page.click(f"#tab-{tab}")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for _ in range(3):
        page.click("#zoom-in")
    page.wait_for_selector("#map[data-thumbs]:not([data-thumbs='0'])")  # images instead of dots
    assert unexpected(visit) == []


def test_columns_of_a_file_colour_and_filter(visit: Visit) -> None:
    page = visit.page
    page.select_option("#by", label="weather")
    page.click("#legend button:has-text('sun')")
    assert page.evaluate("csmlPage.model.shown") == 1
    page.select_option("#by", label="metres")
    assert page.evaluate("csmlPage.model.shown") == 60
    page.fill("#least", "6.9")
    assert page.evaluate("csmlPage.model.shown") == 1
    page.click("#show-all")
    assert page.evaluate("csmlPage.model.shown") == 60


def test_a_lasso_agrees_with_a_test_of_every_point(served: Explorer, visit: Visit) -> None:
    wrong = visit.page.evaluate(
        """async () => {
            const { Spatial, contains } = await import("/spatial.js");
            let seed = 1, wrong = 0;
            const random = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
            const some = (length, make) => Array.from({ length }, make), wide = () => 1.4 * random() - 0.2;
            for (let round = 0; round < 30; round++) {
                const x = Float32Array.from(some(3000, random)), y = Float32Array.from(some(3000, random));
                x[0] = y[0] = 0; x[1] = y[1] = 1;
                const corners = some(3 + Math.floor(20 * random()), () => [wide(), wide()]);
                const found = new Set(new Spatial(x, y).inside(corners));
                for (let id = 0; id < 3000; id++) wrong += found.has(id) !== contains(corners, x[id], y[id]);
            }
            return wrong;
        }"""
    )
    assert wrong == 0


def test_every_class_has_its_own_colour_and_shape_for_every_eye(served: Explorer, visit: Visit) -> None:
    """Two of the 24 colours differ by more than 5 in CIELAB, also for those who see no red or no green."""
    colors, lighter = visit.page.evaluate("import('/palette.js').then((module) => [module.COLORS, module.LIGHTER])")
    looks = visit.page.evaluate(
        """import("/palette.js").then(({ looksOf }) => Array.from({ length: 168 }, (_, number) => {
            const { color, glyph } = looksOf(`class ${number}`);
            return color + glyph;
        }))"""
    )
    assert len(set(colors)) == len(colors) >= 20 and len(set(looks)) == 168
    for shades in (colors, lighter):
        for matrix in (np.eye(3), VIENOT_DEUTERANOPIA, VIENOT_PROTANOPIA):
            lab = cielab((linear(shades) @ matrix.T).clip(0, 1))
            distance = np.sqrt(((lab[:, None] - lab[None]) ** 2).sum(2)) + 1e3 * np.eye(len(lab))
            assert distance.min() > 5 and distance[:8, :8].min() > 15
    luminance = [linear(shades) @ [0.2126, 0.7152, 0.0722] for shades in (lighter, ["#1e2125"])]
    assert (luminance[0] + 0.05).min() / (luminance[1][0] + 0.05) > 3  # on the dark page


def linear(colors: list[str]) -> np.ndarray:
    rgb = np.array([[int(color[at : at + 2], 16) for at in (1, 3, 5)] for color in colors]) / 255
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


# Viénot, Brettel and Mollon, "Digital video colourmaps for checking the legibility of displays by dichromats" (1999).
VIENOT_DEUTERANOPIA = np.array([[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]])
VIENOT_PROTANOPIA = np.array([[0.11238, 0.88762, 0.0], [0.11238, 0.88762, 0.0], [0.00401, -0.00401, 1.0]])


def cielab(light: np.ndarray) -> np.ndarray:
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = light @ to_xyz.T / np.array([0.9505, 1.0, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], 1)


def test_buttons_act_on_the_image_that_is_seen_before_its_words_are_there(visit: Visit) -> None:
    page = visit.page
    settled(page)
    page.wait_for_selector("#more-like")
    slow_down(page, "describe", 600)
    other = page.evaluate("() => [...Array(60).keys()].find(id => !csmlPage.model.about.has(id))")
    page.mouse.click(*place(page, other))
    until(page, "id => csmlPage.model.focus === id", other)
    page.click("#less-like")
    page.wait_for_selector("text=0 like, 1 unlike")
    assert page.get_attribute(".chip img", "src").split("?")[0].endswith(f"/{other}"), "another image than the one seen"
