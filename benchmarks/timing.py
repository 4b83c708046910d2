"""Two or more things timed in turns, so that both meet the same machine, and again where others were at work."""

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

_MAX_FOREIGN = 0.1
"""Cores that other processes may be using while something is measured."""
_TRIES = 5


@dataclass
class Timing:
    """Seconds of every round of every side."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    disturbed: int = 0
    """rounds thrown away because other processes were at work"""

    def median(self, side: str) -> float:
        return statistics.median(self.seconds[side])

    def medians(self) -> dict[str, float]:
        return {side: self.median(side) for side in self.seconds}

    def facts(self) -> dict[str, object]:
        """What is kept of it beside a figure."""
        return {"seconds": self.seconds, "disturbed": self.disturbed}

    def ratio(self, one: str, other: str) -> float:
        """Median over the rounds of one's time / the other's: a slow minute hits both."""
        pairs = zip(self.seconds[one], self.seconds[other], strict=True)
        return statistics.median(a / b for a, b in pairs)


def alternate(sides: dict[str, Callable[[], object]], rounds: int, warm_up: bool = True) -> Timing:
    """Time every side once per round, in order and then in reverse order."""
    timing = Timing({name: [] for name in sides})
    if warm_up:
        for side in sides.values():
            side()
    for round in range(rounds):
        for name in list(sides) if round % 2 == 0 else list(reversed(sides)):
            seconds, lost = _undisturbed(sides[name])
            timing.seconds[name].append(seconds)
            timing.disturbed += lost
    return timing


def _undisturbed(side: Callable[[], object]) -> tuple[float, int]:
    """Seconds of a run during which others used little of the machine, and how often it had to be repeated."""
    best = (float("inf"), float("inf"))
    for attempt in range(_TRIES):
        start, foreign = time.perf_counter(), foreign_cpu_seconds()
        side()
        seconds = time.perf_counter() - start
        share = (foreign_cpu_seconds() - foreign) / seconds
        if share <= _MAX_FOREIGN:
            return seconds, attempt
        best = min(best, (share, seconds))
    return best[1], _TRIES


def foreign_cpu_seconds() -> float:
    """CPU time that processes other than this one and its children have used since the machine started."""
    with open("/proc/stat") as file:
        user, nice, system, _, _, irq, softirq, steal = (int(field) for field in file.readline().split()[1:9])
    busy = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    return busy - _family_cpu_seconds(os.getpid())


def _family_cpu_seconds(pid: int) -> float:
    """User and system time of a process, its finished children and its living ones."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            children = [int(child) for child in file.read().split()]
    except FileNotFoundError:  # it has just ended
        return 0.0
    own = sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")
    return own + sum(_family_cpu_seconds(child) for child in children)
