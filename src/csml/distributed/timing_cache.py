"""What is faster on this machine: measured once, in some tenths of a second, and remembered in csml's cache folder.

Two kinds of CPU differ by more than their flags say. What is measured is therefore the work itself, and what is kept is
a choice in words, so that a later run on the same machine chooses the same.
"""

import os
import platform
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from csml.distributed.threads import one_thread
from csml.errors import CsmlError
from csml.files import cache_dir, cache_key, read_object, write_json

OFF = "CSML_MEASURE"
"""Environment variable: with the value 0 nothing is measured, and the flags of the CPU decide."""
_LIMITS = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS")
"""Environment variables that keep libraries from using what the CPU has."""


def is_measuring_allowed() -> bool:
    return os.environ.get(OFF) != "0"


def measured_once(what: str, of: tuple[object, ...], measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The result of `measure` on this machine, from the cache if it was measured before.

    Args:
        what: a name for the file in the cache.
        of: all that the result depends on, beside the machine.
        measure: returns what JSON can hold.
    """
    path = cache_dir() / "measured" / f"{what}-{cache_key(machine(), of)}.json"
    with suppress(OSError, CsmlError):  # none yet, or not readable: measured again
        return read_object(path)
    found = measure()
    with suppress(OSError, CsmlError):  # a cache that cannot be written is only slow
        write_json(path, found)
    return found


def machine() -> tuple[object, ...]:
    """What decides which of two things is faster. Not the number of threads: it changes as a run goes."""
    limits = tuple(os.environ.get(name) for name in _LIMITS)
    return (_cpu_model(), torch.__version__, torch.backends.cpu.get_cpu_capability(), *limits)


def cpu_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def fastest_times(sides: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The least CPU seconds of each side on one thread, taken in turns after one round that only prepares."""
    best = dict.fromkeys(sides, float("inf"))
    with one_thread():  # by CPU time on one thread, other programs change a measurement little
        for round in range(rounds + 1):
            for name, work in sides.items():
                seconds = cpu_seconds(work)
                if round:
                    best[name] = min(best[name], seconds)
    return best


def _cpu_model(file: Path = Path("/proc/cpuinfo")) -> str:
    with suppress(OSError):
        for line in file.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
