"""Labels on the page of the workbench, in a real browser: with the lasso, by keys, in two tabs, undone."""

from typing import Any

import numpy as np

from browser import Visit
from csml.explorer.explore import Explorer
from workbench_page import (
    ALL,
    box,
    focused,
    lasso,
    selected,
    settled,
    slow_down,
    type_label,
    unexpected,
    until,
    wait_for_labels,
)

pytest_plugins = "workbench_fixtures"
HALF = [(0.005, 0.005), (0.5, 0.005), (0.5, 0.995), (0.005, 0.995)]


def inside(page: Any, corners: list[tuple[float, float]]) -> set[int]:
    """Ids whose place on the screen is within a rectangle, by arithmetic of its own."""
    width, height = page.evaluate("[csmlPage.camera.width, csmlPage.camera.height]")
    places = np.array(page.evaluate("[...csmlPage.model.x.keys()].map((id) => csmlPage.placeOf(id))"))
    (left, top), _, (right, bottom), _ = corners
    x, y = places[:, 0] / width, places[:, 1] / height
    return set(np.flatnonzero((x > left) & (x < right) & (y > top) & (y < bottom)).tolist())


def test_a_selection_is_what_the_lasso_went_round_and_nothing_stays_behind(served: Explorer, visit: Visit) -> None:
    page = visit.page
    settled(page)
    page.click("#mode-lasso")
    lasso(page, ALL)
    assert len(selected(page)) == 60
    part = inside(page, HALF)
    lasso(page, HALF)  # inside of the old one
    assert set(selected(page)) == part
    lasso(page, [(0.5, 0.005), (0.995, 0.005), (0.995, 0.995), (0.5, 0.995)], key="Shift")
    assert len(selected(page)) == 60
    lasso(page, HALF, key="Alt")
    assert set(selected(page)) == set(range(60)) - part
    assert set(page.evaluate("csmlPage.model.list")) == set(selected(page))  # the list shows the selection
    page.wait_for_timeout(600)
    assert len(served.selection) == 60 - len(part)
    page.click("#clear")
    assert selected(page) == []
    page.wait_for_selector("#map[data-selected='0']")
    page.click("#mode-box")
    box(page, HALF)
    assert set(selected(page)) == part
    type_label(page, "left")
    wait_for_labels(page, len(part))
    assert selected(page) == []
    page.click("#tab-queue")
    assert set(served.labels.values()) == {"left"} and len(served.labels) == len(part)
    assert unexpected(visit) == []


def test_labels_show_on_the_map_are_not_overwritten_silently_and_can_be_undone(served: Explorer, visit: Visit) -> None:
    page = visit.page
    settled(page)
    assert page.input_value("#by") == "cluster"
    page.click("#mode-box")
    box(page, HALF)
    count = len(selected(page))
    type_label(page, "ring")
    wait_for_labels(page, count)
    assert page.input_value("#by") == "label"
    assert page.locator("#legend button", has_text=f"ring {count}").count() == 1
    box(page, ALL)
    type_label(page, "donut")
    page.wait_for_selector("#dialog[open]")
    assert f"ring ({count})" in page.text_content("#dialog-text")
    page.click("#dialog button[value=keep]")
    wait_for_labels(page, 60)
    assert sorted(served.labels.values()).count("ring") == count
    page.keyboard.press("Control+z")
    wait_for_labels(page, count)
    page.keyboard.press("Control+z")
    wait_for_labels(page, 0)
    page.click("#redo")
    wait_for_labels(page, count)
    page.click("#history-menu summary")
    page.wait_for_selector("#history .undone")
    assert unexpected(visit) == []


def test_keys_in_quick_succession_label_one_image_each(served: Explorer, visit: Visit) -> None:
    """Also where the server is slow: a key once gave the image before another label, because nothing had moved yet."""
    page = visit.page
    for word in ("one", "two"):
        type_label(page, word)
    wait_for_labels(page, 2)
    slow_down(page, "label", 400)
    queue = page.evaluate("csmlPage.model.list")
    for key in "1212":
        page.keyboard.press(key)
    wait_for_labels(page, 6)
    names = served._workbench.names
    assert [served.labels[names[id]] for id in queue[:6]] == ["one", "two", "one", "two", "one", "two"]
    assert focused(page) == queue[6] and unexpected(visit) == []


def test_a_label_has_the_same_colour_whatever_was_looked_at_before(visit: Visit) -> None:
    page = visit.page
    assert page.input_value("#by") == "cluster"
    type_label(page, "ring")
    wait_for_labels(page, 1)
    colour = "() => getComputedStyle(document.querySelector('#words .glyph')).color"
    before = page.evaluate(colour)
    page.reload()
    page.wait_for_selector("body[data-drawn=yes]")
    assert page.evaluate(colour) == before


def test_two_tabs_see_each_other_s_labels(served: Explorer, visit: Visit) -> None:
    second = visit.page.context.browser.new_page()
    second.goto(served.address)
    second.wait_for_selector("body[data-drawn=yes]")
    type_label(visit.page, "one")
    wait_for_labels(second, 1)
    second.bring_to_front()
    second.keyboard.press("ArrowRight")
    type_label(second, "two")
    wait_for_labels(visit.page, 2)
    assert sorted(served.labels.values()) == ["one", "two"]


def test_the_keyboard_alone_selects_removes_and_accepts(served: Explorer, visit: Visit) -> None:
    page = visit.page
    first = focused(page)
    focusable = "button:enabled, a, input, select, summary, [tabindex='0']"
    assert page.locator(focusable).locator("visible=true").count() < 60  # the tiles are one stop of Tab
    page.keyboard.press("ArrowRight")
    assert focused(page) != first
    page.keyboard.press("Space")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    assert len(selected(page)) == 2
    type_label(page, "pair")
    wait_for_labels(page, 2)
    page.keyboard.press("Delete")
    until(page, "() => csmlPage.model.list.length === 11")
    type_label(page, "other")
    wait_for_labels(page, 3)
    until(page, "() => csmlPage.model.suggested !== null")
    page.click("#accept-all")
    until(page, "() => Number(document.getElementById('labelled').textContent) > 9")
    assert set(served.labels.values()) == {"pair", "other"}
    page.locator("#gallery").focus()
    page.keyboard.press("Control+z")
    wait_for_labels(page, 3)
    assert unexpected(visit) == []


def test_the_keys_of_nine_labels_are_in_view_and_the_head_stays_small(served: Explorer, visit: Visit) -> None:
    page = visit.page
    page.set_viewport_size({"width": 1440, "height": 900})
    names = [f"a class whose name is rather long, number {number}" for number in range(9)]
    served._workbench.label(dict(enumerate(names)), "ask")
    wait_for_labels(page, 9)
    assert page.locator("#words button").count() == 9
    assert page.locator("#words").evaluate("element => element.scrollHeight <= element.clientHeight")
    assert page.locator("#thin").bounding_box()["height"] < 30  # one line
    assert all(name in page.get_attribute("#thin", "title") for name in names)
