"""The exception for errors that a user can fix."""

from collections.abc import Iterable


class CsmlError(Exception):
    """One line that says what is wrong and what would be right. The command line prints it without a traceback."""


def some(names: Iterable[str], shown: int = 4) -> str:
    """The first few of many names, for a one-line message."""
    names = list(names)
    return ", ".join(names[:shown]) + (", …" if len(names) > shown else "")


def reason(error: BaseException) -> str:
    """The first line of an exception's message, or its type if the message is empty."""
    return (str(error).splitlines() or [type(error).__name__])[0]
