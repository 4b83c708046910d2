"""The documentation site: it builds without a warning, its links lead somewhere, and it asks nobody for anything."""

import functools
import html.parser
import http.server
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import csml
from browser import browse
from csml.cli.commands import COMMANDS
from csml.config.build import leaves
from pages import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make docs` makes."""
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Links(html.parser.HTMLParser):
    """What a page refers to, what it loads by itself, and the places in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        self.places.add(found.get("id") or "")
        if tag == "a" and found.get("href"):
            self.links.append(str(found["href"]))
        elif tag in ("link", "script", "img", "iframe", "source"):
            self.loaded += [str(found[name]) for name in ("href", "src") if found.get(name)]


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Links]:
    return {path: Links(path.read_text()) for path in sorted(site.rglob("*.html"))}


def test_every_link_leads_to_a_file_and_a_place_in_it(site: Path, pages: dict[Path, Links]) -> None:
    assert len(pages) > 25
    for path, page in pages.items():
        if path.name == "404.html":
            continue
        for link in (*page.links, *page.loaded):
            address = urlsplit(link)
            if address.scheme:
                assert address.scheme == "https", (path, link)
                continue
            target = (path.parent / unquote(address.path)).resolve() if address.path else path
            assert target.exists(), (path.name, link)
            if address.fragment and target in pages:
                assert unquote(address.fragment) in pages[target].places, (path.name, link)


def test_no_page_loads_anything_from_elsewhere(site: Path, pages: dict[Path, Links]) -> None:
    for path, page in pages.items():
        assert not [link for link in page.loaded if urlsplit(link).netloc], path
    for style in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", style.read_text()), style


def test_the_reference_has_every_setting_and_every_function(site: Path) -> None:
    settings = (site / "reference" / "pretrain.html").read_text()
    others = (site / "reference" / "commands.html").read_text()
    for name, command in COMMANDS.items():
        for key in leaves(command.schema):
            assert f"<code>{key}</code>" in (settings if name == "pretrain" else others), (name, key)
    functions = (site / "functions.html").read_text()
    for name in set(csml.__all__) - {"__version__"}:
        assert re.search(rf'<h3 id="csml\.[\w.]*{name}"', functions), name


def test_formulas_are_drawn_without_a_script(site: Path) -> None:
    method = (site / "method.html").read_text()
    assert method.count("<math") > 40 and "arithmatex" not in method and "$$" not in method


def test_the_search_index_has_the_words_of_the_pages(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    text = " ".join(entry["text"] for entry in index)
    for word in ("RankMe", "contrast.bn_splits", "predictions.csv", "SLURM"):
        assert word in text


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    """The site on this machine."""
    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


def test_the_search_finds_a_page_and_asks_no_other_server(address: str) -> None:
    with browse(f"{address}/index.html", width=390, drawn=".md-footer") as visit:
        wide = visit.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 390, "the page is wider than a telephone"
        visit.page.set_viewport_size({"width": 1440, "height": 900})
        visit.page.click(".md-search__input")
        visit.page.keyboard.type("collapsed")
        visit.page.wait_for_selector(".md-search-result__link[href*='faq.html']", timeout=60_000, state="attached")
        assert visit.requests and all(request.startswith((address, "data:", "blob:")) for request in visit.requests)
        assert not visit.problems


def test_the_search_works_where_the_site_is_opened_from_a_folder(site: Path) -> None:
    with browse((site / "index.html").as_uri(), width=1440, drawn=".md-footer") as visit:
        visit.page.click(".md-search__input")
        visit.page.keyboard.type("collapsed")
        visit.page.wait_for_selector(".md-search-result__link[href*='faq.html']", timeout=60_000, state="attached")
        assert all(request.startswith(("file:", "data:", "blob:")) for request in visit.requests)
        assert not visit.problems
