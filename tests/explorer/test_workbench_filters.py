"""What the map shows, after what it shows has changed, in a real browser."""

from typing import Any

from browser import Visit
from csml.explorer.explore import Explorer
from workbench_page import ALL, lasso, selected, settled, unexpected, until

pytest_plugins = "workbench_fixtures"


def alone(page: Any) -> list[str]:
    """The entries of the legend that are shown alone."""
    return list(page.locator("#legend button[aria-pressed=true]").all_inner_texts())


def test_the_legend_s_filter_stays_with_its_name_and_goes_with_its_last_image(served: Explorer, visit: Visit) -> None:
    page, bench = visit.page, served._workbench
    bench.tag([4], "poor", True)
    until(page, "() => csmlPage.model.state.tags.poor === 1")
    page.select_option("#by", "tag")
    page.click("#legend button:has-text('poor')")
    bench.tag([5, 6], "a tag that comes first", True)
    until(page, "() => Object.keys(csmlPage.model.state.tags).length === 2")
    until(page, "() => csmlPage.model.shown === 1")
    assert "poor" in alone(page)[0]
    page.select_option("#by", "label")
    bench.label({4: "old", 5: "old"}, "ask")
    page.click("#legend button:has-text('old')")
    until(page, "() => csmlPage.model.shown === 2")
    bench.label({4: "new", 5: "new"}, "replace")  # renamed, as people do who have selected what is shown
    until(page, "() => csmlPage.model.shown === 60")
    assert alone(page) == [] and unexpected(visit) == []


def test_escape_drops_the_lasso_that_is_being_drawn(visit: Visit) -> None:
    page = visit.page
    settled(page)
    page.click("#mode-lasso")
    lasso(page, ALL)
    frame = page.locator("#map").bounding_box()
    corners = [(frame["x"] + x * frame["width"], frame["y"] + y * frame["height"] / 2) for x, y in ALL]  # a half
    page.mouse.move(*corners[0])
    page.mouse.down()
    for corner in corners[1:]:
        page.mouse.move(*corner, steps=3)
    page.keyboard.press("Escape")
    page.mouse.up()
    assert len(selected(page)) == 60, "the selection was replaced or cleared"
    page.keyboard.press("Escape")
    assert selected(page) == []
    lasso(page, ALL)
    assert len(selected(page)) == 60  # the next one works
