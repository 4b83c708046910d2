"""Several commands work through one list: each takes the items that no other holds, until all are done."""

import contextlib
import fcntl
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from csml.distributed.world import World

T = TypeVar("T")

log = logging.getLogger("csml")

_PATIENCE = 2.0
"""Seconds between two attempts to take an item that another command holds."""


def unclaimed(work: Sequence[T], place: Callable[[T], Path], world: World, stopped: Callable[[], int]) -> Iterator[T]:
    """Yield each item while this command holds its lock. An item that another command holds is yielded when that
    command has finished it, or has died.

    Args:
        work: the items in the preferred order.
        place: the path that stands for an item; its lock file lies beside it.
        world: the processes of this command; all get the same items.
        stopped: called while waiting, with the same result in all processes; a value other than 0 ends the iteration.
    """
    left, announced = list(work), False
    while left:
        held = []
        for item in left:
            with _lock(place(item)) if world.is_rank_zero else contextlib.nullcontext(False) as mine:
                if world.all_reduce_max(int(mine)):
                    yield item
                else:
                    held.append(item)
        if len(held) == len(left):
            if not announced:
                log.info("another csml works on the remaining %d; waiting", len(left))
                announced = True
            if stopped():
                return
            time.sleep(_PATIENCE)
        left = held


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[bool]:
    """Whether this process got the lock, which it holds until the block ends. The system releases the lock of a process
    that dies, also on a network disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / f".{path.name}.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
