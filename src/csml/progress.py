"""The progress bar of everything that takes long."""

import os
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

T = TypeVar("T")


def progress_bar(console: Console | None = None) -> Progress:
    """A bar with a description, a count, time passed and time left; silent where nobody watches, and of several
    processes all but the first."""
    console = console or Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal or os.environ.get("RANK", "0") != "0",
    )


def watched(items: Iterable[T], description: str, total: int) -> Iterator[T]:
    """Go through `items` under a progress bar."""
    with progress_bar() as bar:
        task = bar.add_task(description, total=total, note="")
        for item in items:
            yield item
            bar.advance(task)
