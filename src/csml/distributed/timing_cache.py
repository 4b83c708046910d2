"""Measures once which of several variants is faster on this machine, in some tenths of a second, and caches the choice.

CPUs differ by more than their flags tell, so the work itself is measured. The choice is stored, so that later runs on
the same machine make the same one.
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
"""Environment variable: if it is 0, nothing is measured, and the flags of the CPU decide."""
_LIMITS = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS")
"""Environment variables that restrict the CPU features libraries use."""


def is_measuring_allowed() -> bool:
    return os.environ.get(OFF) != "0"


def measured_once(what: str, of: tuple[object, ...], measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The result of `measure` on this machine, from the cache if it was measured before.

    Args:
        what: a name for the file in the cache.
        of: everything that the result depends on, except the machine.
        measure: returns a value that JSON can represent.
    """
    path = cache_dir() / "measured" / f"{what}-{cache_key(machine(), of)}.json"
    with suppress(OSError, CsmlError):  # missing or unreadable: measured again
        return read_object(path)
    found = measure()
    with suppress(OSError, CsmlError):  # a cache that cannot be written only costs time
        write_json(path, found)
    return found


def machine() -> tuple[object, ...]:
    """Properties of the machine that decide which variant is faster. Not the number of threads, which changes in a
    run."""
    limits = tuple(os.environ.get(name) for name in _LIMITS)
    return (_cpu_model(), torch.__version__, torch.backends.cpu.get_cpu_capability(), *limits)


def cpu_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def fastest_times(sides: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The least CPU seconds of each variant on one thread, measured in turns after a warm-up round."""
    best = dict.fromkeys(sides, float("inf"))
    with one_thread():  # CPU time on one thread depends little on other programs
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
