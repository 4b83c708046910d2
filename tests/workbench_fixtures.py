"""Fixtures of several modules: a page of the workbench with script in names and a broken file; a server without one."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import csml
from browser import Visit
from csml.explorer.explore import Explorer
from runs_to_show import NASTY, make_flat_run
from workbench_page import SCRIPT, go_to, visiting
from workbench_server import Server


@pytest.fixture(scope="session")
def flat(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    root = make_flat_run(tmp_path_factory.mktemp("page"))
    (root / "photos/59-cross.png").rename(root / "photos" / NASTY)
    (root / "photos/58-crescent.png").write_bytes(b"no picture")
    (root / "run").rename(root / SCRIPT)
    rows = ["path,weather,metres," + SCRIPT, "00-arrow.png,sun,1.5," + SCRIPT, "01-crescent.png,rain,7,"]
    (root / "table.csv").write_text("\n".join(rows))
    return root


@pytest.fixture(scope="session")
def served(flat: Path) -> Iterator[Explorer]:
    explorer = csml.explore(flat / SCRIPT, port=0, browser=False, columns=str(flat / "table.csv"))
    yield explorer
    explorer.stop()


@pytest.fixture(scope="module")
def browser(served: Explorer) -> Iterator[Visit]:
    """One for all tests: to start it takes longer than most of them."""
    with visiting(served) as visit:
        yield visit


@pytest.fixture
def visit(served: Explorer, browser: Visit) -> Visit:
    """The page anew, without any label."""
    while served._workbench.store.undo() is not None:
        pass
    browser.page.set_viewport_size({"width": 1280, "height": 900})
    go_to(browser, served)
    browser.problems.clear()
    browser.requests.clear()
    return browser


@pytest.fixture(scope="session")
def explored(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two of the runs to show, to write in."""
    own = tmp_path_factory.mktemp("explore")
    for name in ("csml", "tuned"):
        shutil.copytree(runs / name, own / name)
    return own


@pytest.fixture(scope="session")
def server(explored: Path) -> Iterator[Server]:
    explorer = csml.explore(explored / "csml", port=0, browser=False)
    yield Server(explorer)
    explorer.stop()
