"""What the page says after something was done, and which image is in focus then, in a real browser."""

from typing import Any

from browser import Visit
from csml.explorer.explore import Explorer
from workbench_page import focused, type_label, unexpected, until, wait_for_labels

pytest_plugins = "workbench_fixtures"


def said(page: Any) -> str:
    """The line below the map."""
    return str(page.text_content("#status"))


def label_two(page: Any) -> None:
    """One image each of two classes, so that the others have suggestions."""
    for count, word in enumerate(("one", "two"), 1):
        type_label(page, word)
        wait_for_labels(page, count)
    until(page, "() => csmlPage.model.suggested !== null")


def test_how_many_were_labelled_is_still_said_when_the_next_ones_are_there(served: Explorer, visit: Visit) -> None:
    page = visit.page
    label_two(page)
    first = page.evaluate("csmlPage.model.list")
    page.click("#accept-all")
    until(page, "old => csmlPage.model.list.length && !csmlPage.model.list.includes(old[0])", first)
    assert said(page) == "10 images labelled as suggested. Ctrl-Z undoes."
    assert unexpected(visit) == []


def test_undo_leads_back_to_the_image_so_that_the_next_label_is_for_it(served: Explorer, visit: Visit) -> None:
    page = visit.page
    wrong = focused(page)
    type_label(page, "slip")
    wait_for_labels(page, 1)
    until(page, "old => csmlPage.model.focus !== old", wrong)
    page.keyboard.press("Control+z")
    wait_for_labels(page, 0)
    until(page, "old => csmlPage.model.focus === old", wrong)
    type_label(page, "right")
    wait_for_labels(page, 1)
    assert served.labels == {served._workbench.names[wrong]: "right"}
    assert unexpected(visit) == []
