"""The workbench in a real browser: what tests do on the page again and again."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import csml
from browser import Visit, browse
from csml.explorer.explore import Explorer

SECONDS = 120_000
"""Playwright's milliseconds: a busy machine may be slow."""
SCRIPT = "<img src=x onerror=alert(1)>"
"""In names: it must never run."""


@contextmanager
def opened(run: Path, **view: Any) -> Iterator[tuple[Explorer, Visit]]:
    """`csml.explore` of a run, and its page in a browser."""
    explorer = csml.explore(run, port=0, browser=False)
    try:
        with visiting(explorer, **view) as visit:
            yield explorer, visit
    finally:
        explorer.stop()


@contextmanager
def visiting(explorer: Explorer, **view: Any) -> Iterator[Visit]:
    """The page in a browser; `view`: width, height, dark."""
    with browse(explorer.address, **view) as visit:
        visit.page.set_default_timeout(SECONDS)
        yield visit


def until(page: Any, condition: str, argument: Any = None) -> None:
    """Wait for a condition, a function in JavaScript; not by frames, which a busy machine draws late."""
    page.wait_for_function(condition, arg=argument, polling=100)


def settled(page: Any) -> None:
    """The map is finished, so its points stay where they are."""
    until(page, "() => csmlPage.model.state.map.finished")


def go_to(visit: Visit, explorer: Explorer) -> None:
    """Open the page of an explorer in a browser that is there."""
    visit.page.goto(explorer.address)
    visit.page.wait_for_selector("body[data-drawn=yes]")


def focused(page: Any) -> int:
    """The image in focus."""
    return int(page.evaluate("csmlPage.model.focus"))


def place(page: Any, id: int) -> tuple[float, float]:
    """Where on the screen an image of the map is."""
    x, y = page.evaluate("id => csmlPage.placeOf(id)", id)
    box = page.locator("#map").bounding_box()
    return box["x"] + x, box["y"] + y


def lasso(page: Any, corners: list[tuple[float, float]], key: str | None = None) -> None:
    """With the mouse around a part of the map; corners from (0, 0) to (1, 1)."""
    box = page.locator("#map").bounding_box()
    spots = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in corners]
    if key:
        page.keyboard.down(key)
    page.mouse.move(*spots[0])
    page.mouse.down()
    for spot in [*spots[1:], spots[0]]:
        page.mouse.move(*spot, steps=4)
    page.mouse.up()
    if key:
        page.keyboard.up(key)


def box(page: Any, corners: list[tuple[float, float]]) -> None:
    """With the mouse from the first corner to the third."""
    frame = page.locator("#map").bounding_box()
    (left, top), (right, bottom) = (
        (frame["x"] + x * frame["width"], frame["y"] + y * frame["height"]) for x, y in (corners[0], corners[2])
    )
    page.mouse.move(left, top)
    page.mouse.down()
    page.mouse.move(right, bottom, steps=3)
    page.mouse.up()


ALL = [(0.005, 0.005), (0.995, 0.005), (0.995, 0.995), (0.005, 0.995)]


def selected(page: Any) -> list[int]:
    """Ids of the selection."""
    return list(page.evaluate("[...csmlPage.model.selected.keys()].filter((id) => csmlPage.model.selected[id])"))


def wait_for_labels(page: Any, count: int) -> None:
    """Until the page says that so many images are labelled."""
    until(page, "n => document.getElementById('labelled').textContent === String(n)", count)


def type_label(page: Any, word: str) -> None:
    """As with a keyboard: the first letter moves to the field."""
    page.keyboard.type(word)
    page.keyboard.press("Enter")


def unexpected(visit: Visit) -> list[str]:
    """What went wrong in the page, without the browser's lines about unreadable images and labels that are there."""
    return [problem for problem in visit.problems if "404" not in problem and "409" not in problem]


def slow_down(page: Any, what: str, milliseconds: int) -> None:
    """Answers of the server to what is asked for reach the page late; `late` counts those that have."""
    page.evaluate(
        """([what, milliseconds]) => {
            const ask = window.fetch;
            window.late = 0;
            window.fetch = async (path, how) => {
                const answer = await ask(path, how);
                if (!path.endsWith(`/${what}`)) return answer;
                await new Promise((go) => setTimeout(go, milliseconds));
                window.late += 1;
                return answer;
            };
        }""",
        [what, milliseconds],
    )
