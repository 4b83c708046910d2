"""A real browser for the tests of pages."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest


@dataclass
class Visit:
    """A page that is open, and what it did."""

    page: Any
    problems: list[str] = field(default_factory=list)
    """console errors and exceptions"""
    requests: list[str] = field(default_factory=list)
    """addresses it asked for, itself first"""


@contextmanager
def browse(
    url: str, width: int = 1280, height: int = 900, dark: bool = False, drawn: str = "body[data-drawn=yes]"
) -> Iterator[Visit]:
    """Open a page in headless Chromium and wait until it is drawn, which a selector says."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no chromium here; with Debian's package manager: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    software = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]  # WebGL without a GPU
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=software)
        page = browser.new_page(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light", accept_downloads=True
        )
        visit = Visit(page)
        page.on("console", lambda message: visit.problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: visit.problems.append(str(error)))
        page.on("request", lambda request: visit.requests.append(request.url))
        page.goto(url)
        page.wait_for_selector(drawn, timeout=120_000)
        yield visit
        browser.close()


def place_of(page: Any, element: str, trace: int, point: int) -> tuple[float, float]:
    """Where on the screen a point of a plot is."""
    x, y = page.evaluate(
        """([element, trace, point]) => {
            const plot = document.getElementById(element), { xaxis, yaxis } = plot._fullLayout, data = plot.data[trace];
            const box = plot.getBoundingClientRect();
            const left = xaxis._offset + xaxis.l2p(data.x[point]), top = yaxis._offset + yaxis.l2p(data.y[point]);
            return [box.left + left, box.top + top];
        }""",
        [element, trace, point],
    )
    return x, y
