"""AMX, the CPU's matrix tiles, where a virtual machine offers them by halves."""

import os
import re
from itertools import takewhile
from pathlib import Path

_TILE_SIZES = 0x1D
"""page of CPUID"""


def avoid_half_offered_tiles(cpuinfo: Path = Path("/proc/cpuinfo")) -> None:
    """Keep torch off AMX where the machine says that it has it, but not how large the tiles are.

    oneDNN, which multiplies in bf16 for torch, then sets up tiles of no size, and the process dies of an illegal
    instruction. It reads its limit once, at its first use: this must come before. A limit that is set already stays.
    """
    try:
        with cpuinfo.open() as file:
            text = "".join(takewhile(str.strip, file))  # the first core: Linux writes the page as it is read
    except OSError:  # not Linux
        return
    pages = re.search(r"^cpuid level\s*:\s*(\d+)", text, re.MULTILINE)
    if pages and int(pages[1]) < _TILE_SIZES and re.search(r"\bamx_tile\b", text):
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")  # all there is below AMX
