"""A guard against virtual machines that report AMX (the CPU's matrix tiles) but hide its description."""

import os
import re
from itertools import takewhile
from pathlib import Path

_TILE_SIZES = 0x1D
"""CPUID leaf that describes the tiles"""


def avoid_incomplete_amx(cpuinfo: Path = Path("/proc/cpuinfo")) -> None:
    """Keep torch from using AMX on a machine that reports it but hides the CPUID leaf with the tile sizes.

    On such a machine oneDNN, torch's bf16 backend, configures tiles of size zero, and the process dies with an illegal
    instruction. oneDNN reads this limit once, on first use, so call this function earlier. A limit that is already set
    is kept.
    """
    try:
        with cpuinfo.open() as file:
            text = "".join(takewhile(str.strip, file))  # the first core only: Linux generates the text while it is read
    except OSError:  # not Linux
        return
    pages = re.search(r"^cpuid level\s*:\s*(\d+)", text, re.MULTILINE)
    if pages and int(pages[1]) < _TILE_SIZES and re.search(r"\bamx_tile\b", text):
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")  # everything below AMX
