"""Adapts the number of CPU threads to the free cores during a run, because other programs need cores too.

Threads that compute together wait for each other a thousand times a second. If another program takes the core of one of
them, all wait: a run with two threads drops to a fifth of its speed; with one thread it keeps more than half.
"""

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch

from csml.config import HardwareConfig

log = logging.getLogger("csml")

_WINDOW = 0.5
"""Seconds between two decisions."""
_CROWDED = 0.1
"""Share of time spent waiting for a core above which there are too many threads."""
_FREE = 0.75
"""A core counts as free if it idles for at least this share of the time."""
_LONGEST_PAUSE = 64.0
"""Longest time in seconds before more threads are tried again, however often that failed."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread: small operations gain nothing from more, and wait long if other programs run."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class Reading(NamedTuple):
    """Counters of Linux since the start, in seconds."""

    at: float
    """the clock"""
    waited: float
    """total time that threads of this process were ready to run but had no core"""
    idle: float
    """total idle time of the cores that this process may use"""


def read_meters(proc: Path = Path("/proc")) -> Reading | None:
    """The current counters; None if the system has none."""
    cores = {f"cpu{core}" for core in os.sched_getaffinity(0)} if hasattr(os, "sched_getaffinity") else set()
    try:
        waited = sum(_waited(task / "schedstat") for task in (proc / "self" / "task").iterdir())
        with (proc / "stat").open() as file:
            fields = [line.split() for line in file if line.startswith("cpu")]
    except (OSError, ValueError, IndexError):
        return None
    idle = sum(int(counted[4]) + int(counted[5]) for counted in fields if counted[0] in cores)
    return Reading(time.monotonic(), waited, idle / os.sysconf("SC_CLK_TCK"))


def _waited(file: Path) -> float:
    try:
        return int(file.read_text().split()[1]) / 1e9
    except (FileNotFoundError, ProcessLookupError):  # the thread just ended
        return 0.0


def better_threads(threads: int, most: int, waited: float, idle: float) -> int:
    """The number of threads for the next window.

    Args:
        threads: current number.
        most: upper limit; a quarter of it is the lower limit.
        waited: average number of cores that the threads were waiting for.
        idle: average number of idle cores.
    """
    if waited >= _CROWDED * threads and threads > 1:
        # n threads and f others on n cores wait w = n·f / (n + f) cores long.
        others = waited * threads / max(threads - waited, 1e-9)
        return max(1, -(-most // 4), threads - max(1, round(others)))
    return min(most, threads + int(idle + 1 - _FREE))


class Threads:
    """The number of threads that torch uses, lowered while other programs need the cores.

    Args:
        fixed: never change it.
    """

    def __init__(self, fixed: bool = False) -> None:
        self.most = self.now = torch.get_num_threads()
        self._last = None if fixed else read_meters()
        self._raised = self._lowered = float("-inf")
        self._pause = 0.0
        """seconds to wait before more threads are tried"""
        self._warned = False

    def adapt(self) -> None:
        """Read the counters when a window has passed, and change the number of threads; cheap, called at every step."""
        if self._last is None or time.monotonic() - self._last.at < _WINDOW:
            return
        if self.now != torch.get_num_threads():  # set elsewhere, by code that knows how many cores decode images
            self.most = self.now = torch.get_num_threads()
        before, self._last = self._last, read_meters()
        if self._last is not None:
            self.decide(before, self._last)

    def decide(self, before: Reading, now: Reading) -> None:
        """Change the number of threads based on two readings."""
        seconds = now.at - before.at
        waited, idle = (now.waited - before.waited) / seconds, (now.idle - before.idle) / seconds
        wanted = better_threads(self.now, self.most, waited, idle)
        if wanted < self.now:
            # Where more threads were a mistake at once, they are tried less and less often.
            hasty = now.at - self._raised < 2 * max(self._pause, 4 * _WINDOW)
            self._pause = min(_LONGEST_PAUSE, 2 * max(self._pause, _WINDOW)) if hasty else _WINDOW
            self._lowered = now.at
            if not self._warned:
                self._warned = True
                log.info("other programs keep cores busy: %d of %d threads until they are free", wanted, self.most)
        elif wanted > self.now:
            if now.at - self._lowered < self._pause:
                return
            self._raised = now.at
        else:
            return
        self.now = wanted
        torch.set_num_threads(wanted)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        """Restore all threads."""
        if self.now != self.most:
            self.now = self.most
            torch.set_num_threads(self.most)


def threads_for(hardware: HardwareConfig, device: torch.device) -> Threads:
    """The threads of this process. Their number is fixed if the user has set it, if a GPU computes, and for compiled
    code, which would be recompiled for another number."""
    return Threads(fixed=hardware.threads is not None or device.type != "cpu" or hardware.compile)
