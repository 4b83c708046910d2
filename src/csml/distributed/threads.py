"""CPU threads beside other programs: as many as there are free cores, decided again and again while a run goes.

Threads that compute together wait for each other a thousand times a second. If another program takes the core of one of
them, all wait, and a run of two threads falls to a fifth of its speed; with one thread it keeps more than half.
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
"""Share of their time that threads wait for a core, from which on there are too many of them."""
_FREE = 0.75
"""A core that idles so much of the time is free."""
_LONGEST_PAUSE = 64.0
"""Seconds after which more threads are tried again at the latest, however often that was a mistake."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread: small operations gain nothing from more, and wait long beside other programs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class Reading(NamedTuple):
    """What Linux has counted since the start, in seconds."""

    at: float
    """the clock"""
    waited: float
    """of all threads of this process: ready to run, but without a core"""
    idle: float
    """of all cores that this process may use"""


def read_meters(proc: Path = Path("/proc")) -> Reading | None:
    """None where the system does not count."""
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
    except (FileNotFoundError, ProcessLookupError):  # the thread has just ended
        return 0.0


def better_threads(threads: int, most: int, waited: float, idle: float) -> int:
    """The number of threads for the next moment.

    Args:
        threads: how many there are now.
        most: never more than these; a quarter of them is the least.
        waited: cores that the threads were waiting for, on average.
        idle: cores that nobody used, on average.
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
        self._told = False

    def adapt(self) -> None:
        """Look at the meters if it is time to, and change the number of threads; cheap, to be called at every step."""
        if self._last is None or time.monotonic() - self._last.at < _WINDOW:
            return
        if self.now != torch.get_num_threads():  # set by whoever knows how many cores decode images
            self.most = self.now = torch.get_num_threads()
        before, self._last = self._last, read_meters()
        if self._last is not None:
            self.decide(before, self._last)

    def decide(self, before: Reading, now: Reading) -> None:
        """Change the number of threads by what was counted between two readings."""
        seconds = now.at - before.at
        waited, idle = (now.waited - before.waited) / seconds, (now.idle - before.idle) / seconds
        wanted = better_threads(self.now, self.most, waited, idle)
        if wanted < self.now:
            # Where more threads were a mistake at once, they are tried less and less often.
            hasty = now.at - self._raised < 2 * max(self._pause, 4 * _WINDOW)
            self._pause = min(_LONGEST_PAUSE, 2 * max(self._pause, _WINDOW)) if hasty else _WINDOW
            self._lowered = now.at
            if not self._told:
                self._told = True
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
        """All threads again, for what follows."""
        if self.now != self.most:
            self.now = self.most
            torch.set_num_threads(self.most)


def threads_for(hardware: HardwareConfig, device: torch.device) -> Threads:
    """Those of this process now. They stay as many if the user has said how many, where a GPU computes, and in compiled
    code, which would be compiled again for another number."""
    return Threads(fixed=hardware.threads is not None or device.type != "cpu" or hardware.compile)
