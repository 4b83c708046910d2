"""A real browser for the tests of pages."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
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
def chromium() -> Iterator[Any]:
    """Headless Chromium, for as many pages as one likes: to start it takes longer than most tests of a page."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no chromium here; with Debian's package manager: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    software = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]  # WebGL without a GPU
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=software)
        yield browser
        browser.close()


@contextmanager
def browse(
    url: str,
    width: int = 1280,
    height: int = 900,
    dark: bool = False,
    drawn: str = "body[data-drawn=yes]",
    browser: Any = None,
) -> Iterator[Visit]:
    """Open a page and wait until it is drawn, which a selector says; in a browser of its own unless one is given."""
    with nullcontext(browser) if browser else chromium() as used:
        page = used.new_page(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light", accept_downloads=True
        )
        visit = Visit(page)
        page.on("console", lambda message: visit.problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: visit.problems.append(str(error)))
        page.on("request", lambda request: visit.requests.append(request.url))
        page.goto(url)
        page.wait_for_selector(drawn, timeout=120_000)
        yield visit
        page.close()
