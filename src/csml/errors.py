"""The one exception that is meant for people."""

from collections.abc import Iterable


class CsmlError(Exception):
    """What is wrong and what would be right, in one line; the command line prints it without a traceback."""


def some(names: Iterable[str], shown: int = 4) -> str:
    """The first of many names, for a message of one line."""
    names = list(names)
    return ", ".join(names[:shown]) + (", …" if len(names) > shown else "")


def reason(error: BaseException) -> str:
    """The first line of what an exception says; its kind, if it says nothing."""
    return (str(error).splitlines() or [type(error).__name__])[0]
