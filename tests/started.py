"""`csml …` in a process of its own, to be watched and signalled, without the seconds that importing csml takes.

The process is forked from a server that has imported csml once. Signals, exit codes, standard error and children are
those of a real process.
"""

import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from conftest import wait_for
from csml.cli import main
from processes import FORKED


class Started:
    """A running command. What it prints goes to a file, so that it never waits for a reader."""

    def __init__(
        self, *words: str, environment: dict[str, str] | None = None, first: Callable[[], Any] | None = None
    ) -> None:
        """`environment` is added to this process's; `first` runs in the new process before the command."""
        folder = Path(tempfile.mkdtemp(dir=os.environ.get("CSML_CACHE")))
        self._printed = folder / "printed"
        self._printed.touch()
        prepare = partial(_prepare, str(self._printed), {**os.environ, **(environment or {})}, first)
        self._process = FORKED.Process(target=_command, args=(prepare, words))
        self._process.start()
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs; minus the signal that killed it."""
        return self._process.exitcode

    @property
    def printed(self) -> str:
        return self._printed.read_text()

    def wait(self, timeout: float = 300) -> str:
        """Until it has ended; what it printed."""
        self._process.join(timeout)
        assert self.returncode is not None, f"the command has not ended after {timeout} seconds: {self.printed}"
        return self.printed

    def send_signal(self, number: int) -> None:
        assert self.pid is not None
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
        self.wait()

    def wait_for(self, path: Path) -> None:
        """Until the process has written the file."""
        wait_for(path, lambda: None if self.returncode is None else self.printed)


def _command(prepare: Callable[[], None], words: tuple[str, ...]) -> None:
    prepare()
    main(list(words))


_USUAL = multiprocessing.get_all_start_methods()[0]
"""How a process that was not forked from the server starts its own: the default of this Python."""


def _prepare(printed: str, environment: dict[str, str], first: Callable[[], Any] | None) -> None:
    os.setsid()
    multiprocessing.set_start_method(_USUAL, force=True)
    os.environ.clear()
    os.environ.update(environment)
    with open(printed, "ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115 (they live as long as the process)
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    if first:
        first()
