"""Several commands at one list of work: each does what no other is at, and sees all of it done in the end."""

import contextlib
import fcntl
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from csml.world import World

T = TypeVar("T")

log = logging.getLogger("csml")

_PATIENCE = 2.0
"""Seconds between two looks at what others are at."""


def unclaimed(work: Sequence[T], place: Callable[[T], Path], world: World, stopped: Callable[[], int]) -> Iterator[T]:
    """Each item, while this command holds it. What another holds comes when that one is through with it, or dead.

    Args:
        work: in the order in which it is wanted.
        place: a path that stands for an item; its lock lies beside it.
        world: the processes of this command, which get the same items.
        stopped: asked while waiting, and the same in all processes; anything but 0 ends it.
    """
    left, told = list(work), False
    while left:
        held = []
        for item in left:
            with _lock(place(item)) if world.first else contextlib.nullcontext(False) as mine:
                if world.largest(int(mine)):
                    yield item
                else:
                    held.append(item)
        if len(held) == len(left):
            if not told:
                log.info("another csml is at what is left (%d); waiting", len(left))
                told = True
            if stopped():
                return
            time.sleep(_PATIENCE)
        left = held


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[bool]:
    """Whether it is ours until the block ends. The system takes it from a process that dies, on one machine or many."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / f".{path.name}.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
