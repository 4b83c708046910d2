"""Progress bars: in a terminal, in a notebook, or none elsewhere."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from html import escape
from types import TracebackType
from typing import Any, ClassVar, Protocol, Self, TypeVar

from csml.console import in_terminal, is_rank_zero, notebook_shell

T = TypeVar("T")

Listener = Callable[[str, int, int, str], None]
"""Called with the description of a bar, steps done, total steps, and the note beside them."""
_listeners: list[Listener] = []

_SECONDS_BETWEEN_UPDATES = 0.25
"""Minimum in a notebook, where every update is a message to the browser."""


class Progress:
    """A progress bar with a description, a count, the time passed and the time left. It is removed at the end.

        with Progress("epoch 1/3", total=300) as bar:
            for batch in batches:
                …
                bar.advance(note="912 images/s")

    It is silent outside a terminal or notebook, and in all processes of a run except the first.

    Args:
        description: the current work.
        total: number of steps.
        done: steps that were done before this bar.
        began: `time.monotonic()` when the work began, by default now; earlier if this bar is one of several for the
            same steps. The time left follows from all the time since then, also from what happens between the bars.
        done_then: steps that were done when the work began, by default `done`.
    """

    def __init__(
        self, description: str, total: int, done: int = 0, began: float | None = None, done_then: int | None = None
    ) -> None:
        self.description, self.total, self.done = description, total, done
        self.began = time.monotonic() if began is None else began
        self.done_then = done if done_then is None else done_then
        self._bar: _Bar | None = None

    def __enter__(self) -> Self:
        if is_rank_zero():
            if (shell := notebook_shell()) is not None:
                self._bar = _NotebookBar(shell, self.description, self.total, self.done, self._left())
            elif in_terminal():
                self._bar = _TerminalBar(self.description, self.total, self.done, self._left())
        self._report("")
        return self

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Count steps as done, and show a note beside the count."""
        self.done += steps
        if self._bar is not None:
            self._bar.update(self.done, note, self._left())
        self._report(note)

    def _left(self) -> str:
        """The time left, if the remaining steps are as fast as those since the work began."""
        fresh = self.done - self.done_then
        if fresh <= 0:
            return "-:--:--"
        return _clock((time.monotonic() - self.began) / fresh * (self.total - self.done))

    def _report(self, note: str) -> None:
        for listener in _listeners:
            listener(self.description, self.done, self.total, note)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()


@contextmanager
def reported_to(listener: Listener) -> Iterator[None]:
    """Inside this block every progress bar reports to the listener, whether or not it is displayed."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def watched(items: Iterable[T], description: str, total: int) -> Iterator[T]:
    """Iterate over `items` under a progress bar."""
    with Progress(description, total) as bar:
        for item in items:
            yield item
            bar.advance()


class _Bar(Protocol):
    def update(self, done: int, note: str, left: str) -> None: ...

    def close(self) -> None: ...


class _TerminalBar:
    """A bar by rich, on standard error."""

    def __init__(self, description: str, total: int, done: int, left: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        self.rich = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            TextColumn("left {task.fields[left]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self.task = self.rich.add_task(description, total=total, completed=done, note="", left=left)
        self.rich.start()

    def update(self, done: int, note: str, left: str) -> None:
        self.rich.update(self.task, completed=done, note=note, left=left)

    def close(self) -> None:
        self.rich.stop()


class _NotebookBar:
    """An HTML progress element, which needs no widgets. The bars of a cell that follow each other share one output."""

    _free: ClassVar[list[Any]] = []
    """Display handles of the current cell that no bar uses."""
    _cell: ClassVar[int] = -1

    def __init__(self, shell: Any, description: str, total: int, done: int, left: str) -> None:
        self.description, self.total = description, total
        self.started = self.shown = time.monotonic()
        if _NotebookBar._cell != shell.execution_count:
            _NotebookBar._cell, _NotebookBar._free = shell.execution_count, []
        content = self._content(done, "", left)
        if _NotebookBar._free:
            self.handle = _NotebookBar._free.pop()
            self.handle.update(content, raw=True)
        else:
            from IPython.display import DisplayHandle

            self.handle = DisplayHandle()
            self.handle.display(content, raw=True)

    def update(self, done: int, note: str, left: str) -> None:
        now = time.monotonic()
        if now - self.shown >= _SECONDS_BETWEEN_UPDATES:
            self.shown = now
            self.handle.update(self._content(done, note, left), raw=True)

    def close(self) -> None:
        self.handle.update({"text/html": "", "text/plain": ""}, raw=True)
        _NotebookBar._free.append(self.handle)

    def _content(self, done: int, note: str, left: str) -> dict[str, str]:
        passed = _clock(time.monotonic() - self.started)
        text = "  ".join(filter(None, [f"{done}/{self.total}", note, passed, "left", left]))
        bar = f'<progress value="{done}" max="{max(1, self.total)}" style="width: 16em"></progress>'
        html = f"<div>{escape(self.description)} {bar} {escape(text)}</div>"
        return {"text/html": html, "text/plain": f"{self.description}  {text}"}


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
