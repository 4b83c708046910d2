"""Who watches: a terminal, a notebook or nobody; and the package's log for those who do."""

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from typing import Any

_NOISY = ("lightning_fabric", "lightning_fabric.utilities.rank_zero")
"""Loggers of other packages. Importing lightning_fabric sets the level of its logger, but not that of the one below."""


def notebook_shell() -> Any | None:
    """The IPython shell of a Jupyter notebook (or of one of its relatives, such as Colab); None elsewhere."""
    ipython = sys.modules.get("IPython")  # a notebook has imported it
    shell = ipython.get_ipython() if ipython is not None else None
    kinds = {kind.__name__ for kind in type(shell).__mro__}
    return shell if "ZMQInteractiveShell" in kinds else None


def in_terminal() -> bool:
    """Whether standard error is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


def is_rank_zero() -> bool:
    """Whether this is the first process of a run, which speaks for all."""
    return os.environ.get("RANK", "0") == "0"


@contextlib.contextmanager
def show_log(always: bool = False) -> Iterator[None]:
    """Show the log of csml inside this block, if a terminal or a notebook watches; otherwise print nothing.

    Where the caller has configured logging (a handler on the root logger or on `csml`), nothing is changed: the caller
    decides. A nested block changes nothing either. Other packages' chatter is limited to errors.

    Args:
        always: show it also where nobody watches, as the command line does, whose output may go to a file.
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
    # Not "no handler": Python would then print warnings by itself.
    return logging.StreamHandler() if always else logging.NullHandler()


class _TerminalHandler(logging.Handler):
    """Prints through rich, which keeps log lines and a running progress bar apart. Only the terminal wraps a long line:
    a command that is copied from it is one line."""

    def __init__(self) -> None:
        from rich.console import Console

        super().__init__()
        self._console = Console(stderr=True)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._console.print(self.format(record), markup=False, highlight=False, emoji=False, soft_wrap=True)
        except Exception:  # as every handler of logging: what cannot be told must not end the work
            self.handleError(record)
