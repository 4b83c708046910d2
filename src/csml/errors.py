"""The exception for errors that a user can fix, and one-line messages for errors of the machine."""

import errno
from collections.abc import Iterable


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
    return _DISK.get(error.errno or 0) or error.strerror or reason(error)


def reason(error: BaseException) -> str:
    """The first line of an exception's message, or its type if the message is empty."""
    return (str(error).splitlines() or [type(error).__name__])[0]
