"""The one property of everything that reads bytes from outside: it works, or it ends in one CsmlError line.

No other exception, no more than five seconds of work, no gigabyte of memory, nothing written outside of its folder, and
nothing executed. Python's audit events show what a parser opens and starts, also from inside libraries.
"""

import contextlib
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from csml.data.decode import DecodeError
from csml.errors import CsmlError

SECONDS, WAITED = 5, 120
"""Seconds of work that a parser may take, and seconds until it counts as waiting for ever; a machine may be busy."""
MEMORY = 1 << 30
_STARTS = {
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "os.fork",
    "subprocess.Popen",
    "pty.spawn",
    "shutil.rmtree",
}
_CHANGES = {"os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.chmod", "os.truncate"}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

_allowed: list[Path] = []
_seen: list[str] = []
_watched: list[int] = []
"""the thread that is watched, while one is"""


class Hang(BaseException):
    """A parser took longer than it may; no `except Exception` swallows this."""


def check(parse: Callable[[Path], Any], content: bytes, folder: Path, name: str) -> str | None:
    """Write `content` to a file and parse it; returns the message if it was refused.

    Args:
        parse: takes the path of the file.
        content: of the file.
        folder: the only place, beside the cache, that may be written.
        name: of the file.
    """
    path = folder / name
    path.write_bytes(content)
    before = _peak()
    try:
        with _watching(folder), _limited():
            parse(path)
        message = None
    except (CsmlError, DecodeError) as error:
        message = str(error)
        assert message.strip(), "an empty message"
    assert not _seen, f"{name}: {_seen}"
    assert _peak() - before < MEMORY, f"{name} took {(_peak() - before) >> 20} MB"
    return message


@contextlib.contextmanager
def _watching(folder: Path) -> Iterator[None]:
    _seen.clear()
    _allowed[:] = [folder.resolve(), Path(os.environ["CSML_CACHE"]).resolve()]
    _watched.append(threading.get_ident())
    try:
        yield
    finally:
        _watched.clear()


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    def late(number: int, frame: FrameType | None) -> None:
        raise Hang(f"no answer after {SECONDS} seconds of work, or {WAITED} of waiting")

    before = [(number, signal.signal(number, late)) for number in (signal.SIGPROF, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, WAITED)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before:
            signal.signal(number, handler)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _listen(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watched or threading.get_ident() != _watched[0]:
        return
    if event in _STARTS:
        _seen.append(f"{event} {arguments}")
    elif event in _CHANGES or (event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITES):
        place = arguments[0]
        if isinstance(place, str | bytes) and not _is_allowed(os.fsdecode(place)):
            _seen.append(f"{event} {place!r}")


def _is_allowed(place: str) -> bool:
    path = Path(os.path.abspath(place))
    return place == os.devnull or path.suffix == ".pyc" or any(path.is_relative_to(folder) for folder in _allowed)


sys.addaudithook(_listen)
