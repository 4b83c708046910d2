"""The report in a real browser: what it shows, to the mouse, the keyboard, on a phone and without JavaScript."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

from browser import browse, chromium
from conftest import csml
from csml.runs.metrics import read_metrics
from runs_to_show import NASTY


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def report(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page; figures/ is beside it."""
    page = tmp_path_factory.mktemp("report") / "out.html"
    names = [str(runs / name) for name in ("moco-v2", "csml", "tuned")]
    done = csml("report", *names, "--output", str(page), "--figures", str(page.parent / "figures"))
    assert done.returncode == 0, done.stderr
    return page


def test_the_page_opens_from_disk_without_an_error_and_asks_for_nothing(report: Path, browser: Any) -> None:
    with browse(report.as_uri(), browser=browser) as visit:
        assert visit.problems == []
        assert [url for url in visit.requests if not url.startswith(("data:", "blob:"))] == [report.as_uri()]
        sections = visit.page.locator("h2").all_text_contents()
        assert sections == [
            "Test pictures and what the network finds most similar", "Results", "Map", "Neighbours during training",
            "Classes", "Views as the network sees them", "Training", "Settings", "Terms",
        ]  # fmt: skip


def test_map_and_curves_have_as_many_points_as_there_are_images_and_epochs(
    report: Path, runs: Path, browser: Any
) -> None:
    with browse(report.as_uri(), browser=browser) as visit:
        count = "id => (document.getElementById(id).innerHTML.match(/h0/g) || []).length"
        for number in range(3):
            assert visit.page.evaluate(count, f"map-{number}") == 60
            assert visit.page.locator(f"#map-{number} path").count() == 5  # classes
        figure = visit.page.locator("figure", has=visit.page.get_by_text("20-NN on test images", exact=True))
        told = figure.locator("svg polyline ~ * title").all_text_contents()
        for name in ("moco-v2", "csml"):
            logged = [record["knn20"] for record in read_metrics(runs / name / "metrics.jsonl")]
            for epoch, value in enumerate(logged, 1):
                assert f"{name}, epoch {epoch}: {100 * value:.4g} %" in told


def test_without_javascript_every_chart_and_the_map_are_there(report: Path) -> None:
    page = report.read_text("utf-8")
    before_scripts = page[: page.index("<script")]
    assert len(re.findall(r"M[\d.]+ [\d.]+h0", before_scripts)) == 3 * 60
    assert before_scripts.count('<svg class="drawn"') >= 8
    assert "plotly" not in page.lower() and len(page) < 1e6


def test_the_first_thing_on_the_page_is_the_result_with_what_it_has_to_beat(report: Path, browser: Any) -> None:
    with browse(report.as_uri(), width=1440, browser=browser) as visit:
        title = visit.page.locator("h1")
        assert "of 100 test pictures by their neighbours" in title.text_content()
        for name in ("raw pixels", "untrained network", "always guessing the largest class", "moco-v2", "csml"):
            assert name in title.text_content()
        box = visit.page.locator("#nearest ~ .scroll img.tile").first.bounding_box()
        assert box["y"] < 900  # the pictures begin on the first screen
        mark = "e => getComputedStyle(e, '::after').content"
        assert visit.page.locator(".marked.yes").first.evaluate(mark) == '"✓"'
        assert visit.page.locator(".marked.no").first.evaluate(mark) == '"✗"'


def test_no_path_of_this_machine_stands_in_the_page(report: Path, runs: Path) -> None:
    assert str(runs) not in report.read_text("utf-8")


def test_pointing_at_a_dot_shows_its_picture_and_a_click_its_neighbours(report: Path, browser: Any) -> None:
    with browse(report.as_uri(), browser=browser) as visit:
        page = visit.page
        page.locator("#map-1").scroll_into_view_if_needed()
        page.mouse.move(*page.evaluate("screenPlace(1, 27)"))
        assert page.get_attribute("#panel-1 .clicked", "data-row") == "0"  # something is there from the start
        page.wait_for_selector("#panel-1 .hovered:not([data-row='0'])")
        row = int(page.get_attribute("#panel-1 .hovered", "data-row"))
        name = page.evaluate("row => nameOf(data.maps[1], row)", row)
        assert page.locator("#panel-1 .hovered .name").text_content() == name
        style = page.locator("#panel-1 .hovered .thumb").evaluate("e => getComputedStyle(e).backgroundImage")
        assert style.startswith('url("data:image/webp')
        page.mouse.click(*page.evaluate("screenPlace(1, 27)"))
        page.wait_for_selector("#panel-1 .clicked:not([data-row='0'])")
        neighbors = page.locator("#panel-1 .clicked button")
        clicked = int(page.get_attribute("#panel-1 .clicked", "data-row"))
        expected = page.evaluate(
            "row => data.maps[1].neighbors[row].map(other => nameOf(data.maps[1], other))", clicked
        )
        assert neighbors.evaluate_all("all => all.map(e => e.title)") == expected
        assert visit.problems == []


def test_the_map_can_be_walked_with_the_keyboard(report: Path, browser: Any) -> None:
    with browse(report.as_uri(), browser=browser) as visit:
        visit.page.focus("#next-0")
        visit.page.keyboard.press("Enter")
        assert visit.page.get_attribute("#panel-0 .clicked", "data-row") == "1"
        visit.page.keyboard.press("Tab")  # the first neighbour
        visit.page.keyboard.press("Enter")
        first = visit.page.evaluate("data.maps[0].neighbors[1][0]")
        assert visit.page.get_attribute("#panel-0 .clicked", "data-row") == str(first)


def test_file_names_are_text_wherever_they_are(report: Path, browser: Any) -> None:
    with browse(report.as_uri(), browser=browser) as visit:
        row = visit.page.evaluate("name => data.collections[0].names.findIndex(n => n.includes(name))", NASTY)
        assert row >= 0
        visit.page.evaluate("row => show(0, row, true)", row)
        assert NASTY in visit.page.locator("#panel-0 .hovered .name").text_content()
        assert visit.page.locator('img[src="x"]').count() == 0
        assert visit.page.locator(f'img[title*="{NASTY}"]').count() > 0
        assert visit.problems == []


@pytest.mark.parametrize("dark", [False, True])
def test_on_a_phone_nothing_sticks_out_and_every_picture_has_words(report: Path, dark: bool, browser: Any) -> None:
    with browse(report.as_uri(), width=390, height=800, dark=dark, browser=browser) as visit:
        assert visit.page.evaluate("document.scrollingElement.scrollWidth") <= 390
        assert visit.page.locator("img:not([alt])").count() == 0
        assert visit.page.locator("svg:not([aria-label])").count() == 0
        background, ink = visit.page.evaluate(
            "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
        )
        light = sum(map(int, background.strip("rgb()").split(","))) > sum(map(int, ink.strip("rgb()").split(",")))
        assert light != dark


def test_frames_tell_right_from_wrong(report: Path, runs: Path, browser: Any) -> None:
    with browse(report.as_uri(), browser=browser) as visit:
        tiles = visit.page.locator("#omega ~ .scroll").first.locator("img.tile")
        told = tiles.evaluate_all(
            "all => all.map(e => [e.classList.contains('right'), e.classList.contains('wrong'), e.title])"
        )
    anchors = [title for right, wrong, title in told if not right and not wrong]
    assert len(anchors) == 5
    anchor = ""
    for right, wrong, title in told:
        label = title.rsplit("(", 1)[1]
        if not right and not wrong:
            anchor = label
        else:
            assert right == (label == anchor) and wrong == (label != anchor)


def test_figures_are_written_for_paper(report: Path) -> None:
    figures = report.parent / "figures"
    names = {path.stem for path in figures.glob("*.png")}
    assert {path.stem for path in figures.glob("*.svg")} == names
    assert {"all-tasks", "map-of-csml", "loss-of-csml", "linear-accuracy-by-stage", "20-nn-accuracy-by-stage"} <= names
    assert all(Image.open(figures / f"{name}.png").width > 300 for name in names)


def test_baselines_stand_in_the_table_above_the_runs(report: Path) -> None:
    page = re.sub(r"<abbr[^>]*>", "", report.read_text("utf-8"))
    rows = [
        page.index(f'<th scope="row">{name}') for name in ("largest class", "raw pixels", "untrained network", "csml")
    ]
    assert rows == sorted(rows)


def test_a_run_without_labels_is_shown_by_clusters(runs: Path, tmp_path: Path, browser: Any) -> None:
    settings = yaml.safe_load((runs / "csml/config.yaml").read_text())
    settings["images"]["labels"] = "none"
    blind = tmp_path / "blind"
    blind.mkdir()
    (blind / "config.yaml").write_text(yaml.safe_dump(settings))
    for name in ("backbone.safetensors", "metrics.jsonl"):
        (blind / name).write_bytes((runs / "csml" / name).read_bytes())
    done = csml("report", str(blind))
    assert done.returncode == 0, done.stderr
    with browse((blind / "report.html").as_uri(), browser=browser) as visit:
        assert visit.page.input_value("#by-0") == "cluster"
        assert visit.page.locator("#by-0 option").count() == 1
        assert visit.problems == []
