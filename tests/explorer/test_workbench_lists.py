"""Lists, menus and the enlarged image of the workbench, in a browser."""

from browser import Visit
from csml.explorer.explore import Explorer
from workbench_page import focused, place, selected, settled, slow_down, type_label, unexpected, until, wait_for_labels

pytest_plugins = "workbench_fixtures"


def test_the_browser_s_back_leads_to_the_list_before(visit: Visit) -> None:
    page = visit.page
    settled(page)
    page.mouse.click(*place(page, 7))
    until(page, "() => document.getElementById('list-title').textContent.includes('07-crescent.png')")
    page.click("#more-like")
    page.wait_for_selector(".chip")
    page.reload()
    page.wait_for_selector("body[data-drawn=yes]")
    assert page.get_attribute("#tab-search", "aria-selected") == "true"
    page.go_back()
    until(page, "() => document.getElementById('list-title').textContent.includes('07-crescent.png')")
    assert focused(page) == 7 and unexpected(visit) == []


def test_a_name_that_nearly_exists_is_asked_about(served: Explorer, visit: Visit) -> None:
    page = visit.page
    type_label(page, "ring")
    wait_for_labels(page, 1)
    type_label(page, "Ring")
    page.click("#dialog button[value=ring]")
    wait_for_labels(page, 2)
    assert set(served.labels.values()) == {"ring"}


def test_the_enlarged_image_has_the_keys_of_the_list(served: Explorer, visit: Visit) -> None:
    page = visit.page
    type_label(page, "ring")
    wait_for_labels(page, 1)
    first = focused(page)
    page.locator(f".tile[data-id='{first}']").dblclick()
    page.wait_for_selector(f"#viewer[open] img[src='/image/{first}']")
    page.keyboard.press("1")
    wait_for_labels(page, 2)
    page.wait_for_selector(f"#viewer[open] img[src='/image/{focused(page)}']")
    assert focused(page) != first
    page.keyboard.press("Escape")
    page.wait_for_selector("#viewer", state="hidden")


def test_a_menu_closes_with_escape_and_when_another_opens(visit: Visit) -> None:
    page = visit.page
    page.click("#history-menu summary")
    page.click("#help-menu summary")
    assert page.eval_on_selector_all(".menu[open]", "all => all.map((menu) => menu.id)") == ["help-menu"]
    page.keyboard.press("Escape")
    assert page.locator(".menu[open]").count() == 0


def test_what_the_map_shows_can_be_selected(visit: Visit) -> None:
    page = visit.page
    page.select_option("#by", label="weather")
    page.click("#legend button:has-text('sun')")
    page.wait_for_selector("text=1 of 60 shown")
    page.click("#select-shown")
    assert selected(page) == [0] and page.evaluate("csmlPage.model.list") == [0]


def test_search_and_labels_begin_by_keys_wherever_one_is(visit: Visit) -> None:
    page = visit.page
    for key, field in (("/", "find"), ("q", "label")):
        page.locator("#gallery").focus()
        page.keyboard.press("*")
        page.wait_for_selector("#viewer[open]")
        page.keyboard.press(key)
        until(page, "field => document.activeElement.id === field", field)
        assert page.locator("#viewer[open]").count() == 0
        page.keyboard.press("Escape")
    assert page.url.endswith("#search")  # a reload shows the search again, and Back leads to the queue
    page.go_back()
    page.wait_for_selector("#tab-queue[aria-selected=true]")


def test_while_a_list_is_made_the_list_before_is_not_shown_as_if_it_were_it(visit: Visit) -> None:
    page = visit.page
    until(page, "() => csmlPage.model.list.length === 12")
    slow_down(page, "dark?similarity=0.95", 600)
    page.click("#tab-clean")
    page.select_option("#clean-kind", "dark")
    assert page.evaluate("csmlPage.model.list") == []
    assert page.text_content(".empty") == "Looking for dark images …"
