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


def test_the_others_are_offered_only_where_there_are_any(served: Explorer, visit: Visit) -> None:
    page = visit.page
    served._workbench.label({4: "old", 5: "old"}, "ask")
    wait_for_labels(page, 2)
    some = ["Label only the others", "Replace it", "Cancel"]
    for ids, answers in (([4, 5], ["Replace all 2", "Cancel"]), ([4, 6], some)):
        page.evaluate("async ids => (await import('/model.js')).select(ids)", ids)
        page.evaluate("async id => (await import('/model.js')).focus(id)", ids[0])
        page.fill("#label", "new")
        page.press("#label", "Enter")
        page.wait_for_selector("#dialog[open]")
        assert page.locator("#dialog-buttons button").all_inner_texts() == answers
        page.keyboard.press("Escape")
    assert set(served.labels.values()) == {"old"}


def test_what_changes_nothing_is_not_counted_and_does_not_invite_to_undo_it(served: Explorer, visit: Visit) -> None:
    page = visit.page
    served._workbench.label({4: "old"}, "ask")
    assert served._workbench.tag([4, 5], "poor", True) == 2
    assert served._workbench.tag([4, 5, 6], "poor", True) == 1  # two have it already
    until(page, "() => csmlPage.model.state.tags.poor === 3")
    page.evaluate("async id => (await import('/model.js')).focus(id)", 4)
    page.fill("#tag", "poor")
    page.click("#give-tag")
    until(page, "() => document.getElementById('status').textContent.startsWith('Nothing changes')")
    page.fill("#tag", "never given")
    page.click("#take-tag")
    until(page, "() => document.getElementById('status').textContent.includes('no tag never given')")
    page.click("#words button:has-text('old')")
    until(page, "() => document.getElementById('status').textContent === 'Nothing changes: labelled old already.'")
    assert [one.about for one in served._workbench.store.history(3)] == [
        "1 image tagged poor", "2 images tagged poor", "1 image labelled old",
    ]  # fmt: skip


def test_a_label_that_did_not_arrive_leads_back_to_its_image(visit: Visit) -> None:
    page = visit.page
    first = focused(page)
    page.route("**/api/label", lambda route: route.fulfill(status=507, body="The disk is full."))
    type_label(page, "lost")
    until(page, "() => document.getElementById('status').textContent === 'The disk is full.'")
    assert focused(page) == first
    page.unroute("**/api/label")
