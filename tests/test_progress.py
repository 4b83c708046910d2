"""Progress bars and the log: in a terminal, in a real notebook, and silent elsewhere."""

import logging
import os
import pty
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from csml import console, progress
from csml.console import show_log
from csml.progress import Progress, watched

SCRIPT = """
import logging
from csml import progress
from csml.console import show_log
from csml.progress import Progress, watched
progress._SECONDS_BETWEEN_UPDATES = 0
log = logging.getLogger("csml")
with show_log():
    for item in watched(range(5), "counting", total=5):
        if item == 2:
            log.info("half-way")
            log.warning("take care")
"""


def in_pty(code: str, **environment: str) -> str:
    """Run Python with standard error on a terminal; returns what the terminal was sent."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", code], stderr=theirs, env=os.environ | environment) as process:
        os.close(theirs)
        received = b""
        try:
            while block := os.read(ours, 4096):
                received += block
        except OSError:  # the other end was closed
            pass
        assert process.wait(timeout=60) == 0, received
    os.close(ours)
    return received.decode()


class Watcher(NotebookClient):
    """Runs a notebook and keeps what it displays, update by update."""

    def __init__(self, *cells: str) -> None:
        super().__init__(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells]), timeout=120)
        self.shown: list[tuple[int, str, str]] = []
        """cell, display id, HTML"""

    def process_message(self, msg: dict[str, Any], cell: Any, cell_index: int) -> Any:
        if msg["msg_type"] in ("display_data", "update_display_data"):
            content = msg["content"]
            self.shown.append((cell_index, content["transient"]["display_id"], content["data"]["text/html"]))
        return super().process_message(msg, cell, cell_index)


@pytest.fixture
def jupyter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left in the user's home."""
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))


def test_a_notebook_shows_a_bar_and_the_log(jupyter: None) -> None:
    another = "for item in watched(range(3), 'again <b>', total=3): pass"
    notebook = Watcher(SCRIPT + another, "with Progress('next cell', total=4, done=1) as bar: bar.advance()")
    done = notebook.execute()
    first = [html for cell, _, html in notebook.shown if cell == 0]
    for step in range(5):
        assert "counting" in first[step] and f'<progress value="{step}" max="5"' in first[step]
    assert any("again &lt;b&gt;" in html for html in first)
    assert len({display for _, display, _ in notebook.shown}) == 2  # the two bars of the first cell share a place
    second = [html for cell, _, html in notebook.shown if cell == 1]
    assert '<progress value="1" max="4"' in second[0]
    assert first[-1] == second[-1] == ""  # removed
    streams = [(out.name, out.text) for out in done.cells[0].outputs if out.output_type == "stream"]
    assert {name for name, _ in streams} == {"stdout"}
    assert "".join(text for _, text in streams) == "half-way\ntake care\n"


def test_an_interrupted_bar_is_removed_from_the_notebook(jupyter: None) -> None:
    notebook = Watcher(
        "from csml.progress import watched\nfor item in watched(range(3), 'x', total=3): raise KeyboardInterrupt"
    )
    with pytest.raises(CellExecutionError, match="KeyboardInterrupt"):
        notebook.execute()
    assert '<progress value="0"' in notebook.shown[0][2] and notebook.shown[-1][2] == ""


def test_other_ranks_are_silent_in_a_notebook(jupyter: None) -> None:
    notebook = Watcher("import os\nos.environ['RANK'] = '1'\n" + SCRIPT)
    notebook.execute()
    assert notebook.shown == []


def test_a_terminal_shows_a_bar_and_the_log() -> None:
    text = in_pty(SCRIPT)
    assert "counting" in text and "/5" in text
    assert "half-way" in text and "take care" in text


def test_a_command_in_the_log_can_be_copied_from_a_narrow_terminal() -> None:
    command = "csml pretrain --preset photos --data [red]/some/place/photos --epochs 20 :smile: --neighbors.size 144"
    text = "the same as:\n    " + command
    script = SCRIPT.replace("    for item", f"    log.info({text!r})\n    for item")
    assert f"\r\n    {command}\r\n" in in_pty(script, COLUMNS="40")


def test_other_ranks_are_silent_in_a_terminal() -> None:
    script = "from csml.progress import watched\nfor item in watched(range(3), 'x', total=3): pass"
    assert "x" in in_pty(script)
    assert in_pty(script, RANK="1") == ""


def test_nothing_is_printed_where_nobody_watches() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout == done.stderr == ""


def test_the_command_line_logs_also_where_nobody_watches() -> None:
    script = SCRIPT.replace("show_log()", "show_log(always=True)")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "half-way\ntake care\n")


def test_logging_that_the_caller_configured_is_left_alone() -> None:
    script = "import logging\nlogging.basicConfig(format='mine: %(message)s')\n" + SCRIPT
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == "mine: take care\n"


def test_the_log_is_as_before_after_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    log = logging.getLogger("csml")
    before = log.level, log.handlers, log.propagate
    with pytest.raises(ValueError, match="once"), show_log(always=True):
        assert log.level == logging.INFO and not log.propagate
        handlers = log.handlers
        with show_log():
            assert log.handlers is handlers
        raise ValueError("once")
    assert (log.level, log.handlers, log.propagate) == before


def test_the_iterator_gives_every_item_and_counts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[tuple[int, str]] = []

    class Bar:
        def __init__(self, *arguments: object) -> None: ...

        def update(self, done: int, note: str, left: str) -> None:
            counted.append((done, note))

        def close(self) -> None:
            counted.append((-1, "closed"))

    monkeypatch.setattr(progress, "in_terminal", lambda: True)
    monkeypatch.setattr(progress, "_TerminalBar", Bar)
    assert list(watched("abc", "letters", total=3)) == ["a", "b", "c"]
    assert counted == [(1, ""), (2, ""), (3, ""), (-1, "closed")]
    counted.clear()
    with Progress("steps", total=9, done=4) as bar:
        bar.advance(2, note="fast")
    assert counted == [(6, "fast"), (-1, "closed")]


def test_a_notebook_is_told_a_few_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now, shown = 0.0, []
    handle = SimpleNamespace(update=lambda content, raw: shown.append(content["text/plain"]))
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    monkeypatch.setattr(progress._NotebookBar, "_free", [handle])
    monkeypatch.setattr(progress._NotebookBar, "_cell", 7)
    monkeypatch.setattr(progress, "notebook_shell", lambda: SimpleNamespace(execution_count=7))
    with Progress("steps", total=1000) as bar:
        for step in range(1, 1001):
            now = step / 100
            bar.advance(note="fast")
    assert shown.pop() == ""  # removed
    assert len(shown) == 1 + 40  # at the start, and four times a second for ten seconds
    assert shown[0] == "steps  0/1000  0:00:00  left  -:--:--"
    assert shown[20] == "steps  500/1000  fast  0:00:05  left  0:00:05"


def test_the_time_left_counts_what_happened_between_the_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    now, left = 0.0, []
    bar_of = SimpleNamespace(update=lambda done, note, text: left.append(text), close=lambda: None)
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    monkeypatch.setattr(progress, "in_terminal", lambda: True)
    monkeypatch.setattr(progress, "_TerminalBar", lambda *start: left.append(start[-1]) or bar_of)
    for done in (20, 30):  # a resumed run of 50 steps: an epoch is 10 steps of 1 s, and 40 s pass after it
        with Progress("epoch", total=50, done=done, began=0.0, done_then=20) as bar:
            now += 10
            bar.advance(10)
        now += 40
    assert left == ["-:--:--", "0:00:20", "0:01:40", "0:00:30"]


def test_a_terminal_shows_the_time_left() -> None:
    script = (
        "import time\nfrom csml.progress import Progress\n"
        "with Progress('x', total=9, done=6, began=time.monotonic() - 60, done_then=3) as bar: pass"
    )
    assert "left 0:01:00" in in_pty(script)


def test_ipython_is_not_imported_to_find_out() -> None:
    code = "import sys, csml.progress, csml.console as c; c.notebook_shell(); assert 'IPython' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_relative_of_the_notebook_s_shell_counts_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = type("Shell", (type("ZMQInteractiveShell", (), {}),), {})()  # Colab's
    monkeypatch.setitem(sys.modules, "IPython", type("IPython", (), {"get_ipython": staticmethod(lambda: shell)}))
    assert console.notebook_shell() is shell
    terminal = type("TerminalInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", type("IPython", (), {"get_ipython": staticmethod(lambda: terminal)}))
    assert console.notebook_shell() is None
