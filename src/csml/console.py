"""Detects a terminal or a notebook, and shows the package's log there."""

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from typing import Any

_NOISY = ("lightning_fabric", "lightning_fabric.utilities.rank_zero")
"""Loggers of other packages. Importing lightning_fabric sets the level of its logger, but not that of its child."""


def notebook_shell() -> Any | None:
    """The IPython shell of a Jupyter notebook (or a similar one, such as Colab); None elsewhere."""
    ipython = sys.modules.get("IPython")  # always imported in a notebook
    shell = ipython.get_ipython() if ipython is not None else None
    kinds = {kind.__name__ for kind in type(shell).__mro__}
    return shell if "ZMQInteractiveShell" in kinds else None


def in_terminal() -> bool:
    """Whether standard error is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


def is_rank_zero() -> bool:
    """Whether this is the first process of a run, the one that prints."""
    return os.environ.get("RANK", "0") == "0"


@contextlib.contextmanager
def show_log(always: bool = False) -> Iterator[None]:
    """Show the log of csml inside this block, in a terminal or a notebook; otherwise print nothing.

    If the caller has configured logging (a handler on the root logger or on `csml`), nothing changes. A nested block
    changes nothing either. Other packages only log errors.

    Args:
        always: show it everywhere, as the command line does, whose output may go to a file.
    """
    log = logging.getLogger("csml")
    if log.hasHandlers() and not always:
        yield
        return
    before = log.level, log.handlers, log.propagate
    levels = {name: logging.getLogger(name).level for name in _NOISY}
    log.handlers, log.propagate = [_handler(always)], False
    log.setLevel(logging.INFO)
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.handlers, log.propagate = before[1:]
        log.setLevel(before[0])
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


def log_is_shown() -> bool:
    """Whether `show_log` shows the log now."""
    handlers = logging.getLogger("csml").handlers
    return any(not isinstance(handler, logging.NullHandler) for handler in handlers)


def _handler(always: bool) -> logging.Handler:
    if in_terminal():
        return _TerminalHandler()
    if notebook_shell() is not None:
        return logging.StreamHandler(sys.stdout)  # standard error is red in a notebook
    # A null handler, because without any handler Python would print warnings itself.
    return logging.StreamHandler() if always else logging.NullHandler()


class _TerminalHandler(logging.Handler):
    """Prints through rich, which separates log lines from a running progress bar. Only the terminal wraps long lines,
    so a command copied from it is one line."""

    def __init__(self) -> None:
        from rich.console import Console

        super().__init__()
        self._console = Console(stderr=True)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._console.print(self.format(record), markup=False, highlight=False, emoji=False, soft_wrap=True)
        except Exception:  # as in every logging handler: a failure to log must not stop the work
            self.handleError(record)
