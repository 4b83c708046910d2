"""The exception for errors that a user can fix, and one-line messages for errors of the machine."""

import contextlib
import difflib
import errno
import os
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

_MOST_NAMES = 10_000
"""Entries of a folder among which a similar name is looked for."""


class CsmlError(Exception):
    """One line that says what is wrong and what would be right. The command line prints it without a traceback."""


def one_line(text: object, longest: int = 2000) -> str:
    """A message as one line, even if a name in it contains line breaks."""
    line = " ".join(str(text).split())
    return line if len(line) <= longest else f"{line[:longest]}…"


def some(names: Iterable[str], shown: int = 4) -> str:
    """The first few of many names, for a one-line message."""
    names = list(names)
    return ", ".join(names[:shown]) + (", …" if len(names) > shown else "")


def did_you_mean(path: str | os.PathLike[str], otherwise: str = "") -> str:
    """The end of a message about a path that does not exist: the name beside it that is most similar, or `otherwise`.

    If a folder of the path is missing already, that folder is the one that is compared.
    """
    end = f"; {otherwise}" if otherwise else ""
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        whole = Path(path).expanduser()
        missing = next((p for p in (whole, *whole.parents) if not p.exists() and p.parent.is_dir()), None)
        if missing is None:
            return end
        with os.scandir(missing.parent) as entries:
            names = [entry.name for entry in islice(entries, _MOST_NAMES)]
        visible = [name for name in names if not name.startswith(".") or missing.name.startswith(".")]
        for name in difflib.get_close_matches(missing.name, visible, n=1):
            beside = missing.with_name(name)
            meant = beside / whole.relative_to(missing)
            return f"; did you mean {meant if meant.exists() else beside}?"
    return end


_DISK = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the disk is read-only",
    errno.EACCES: "permission denied",
    errno.ELOOP: "a link leads to itself",
    errno.ENAMETOOLONG: "the name is too long",
}


def machine_problem(error: BaseException) -> str | None:
    """One line for an error of the machine; None if the cause is another, such as a bug in csml."""
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename is not None else ""
        return f"{place}{disk_problem(error)}"
    if isinstance(error, ValueError) and ("embedded null" in str(error) or "surrogates not allowed" in str(error)):
        return f"a name has a character that no file can have ({reason(error)})"
    if isinstance(error, MemoryError):
        return "there is not enough memory"
    if isinstance(error, RuntimeError) and "home directory" in str(error):
        return "~ or ~NAME: there is no home directory of that name; give the whole path"
    if isinstance(error, RuntimeError) and str(error).startswith("Symlink loop"):  # raised by Path.resolve
        return f"{_DISK[errno.ELOOP]} ({reason(error)})"
    started = isinstance(error, EOFError) and str(error) == "unexpected EOF"  # raised by the server that forks workers
    if started or (isinstance(error, RuntimeError) and "DataLoader worker" in str(error)):
        return (
            f"a process that decodes images was killed, perhaps for want of memory ({reason(error)}); "
            "give fewer images.workers"
        )
    return None


def disk_problem(error: OSError) -> str:
    """Why a file cannot be read or written."""
    text = _DISK.get(error.errno or 0) or error.strerror or reason(error)
    missing = isinstance(error, FileNotFoundError) and isinstance(error.filename, str | os.PathLike)
    return text + did_you_mean(error.filename) if missing else text


def reason(error: BaseException) -> str:
    """The first line of an exception's message, or its type if the message is empty."""
    return (str(error).splitlines() or [type(error).__name__])[0]
