"""The data type of the codes in the coarse search: the one this machine multiplies fastest, and correctly.

A CPU with VNNI multiplies bytes five times as fast as float32. One with AVX2 alone is still two and a half times as
fast, but clips the sum of two products to 16 bits: there, codes of 7 bits give correct scores, those of 8 do not.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import torch

from csml.distributed.timing_cache import fastest_times, is_measuring_allowed, measured_once


@dataclass(frozen=True)
class Codes:
    """A type of codes."""

    name: str
    dtype: torch.dtype
    limit: int
    """largest code; 0: the type has fractions"""
    ranking: int
    """cost of ranking a candidate exactly, per dimension, in units of one product of codes; measured with two cores"""


KINDS = {
    codes.name: codes
    for codes in (
        Codes("int8", torch.int8, 127, 400),
        Codes("int7", torch.int8, 63, 200),
        Codes("float32", torch.float32, 0, 80),
        Codes("float16", torch.float16, 0, 400),
    )
}
_ROWS, _COLUMNS, _DIMS, _ROUNDS = 256, 8192, 128, 4
_WORTH = 0.8
"""Bytes must take at most this share of the time of float32, because they need more candidates."""


def codes_for(device: torch.device) -> Codes:
    """The fastest type: float16 on tensor cores; on a CPU, the measured one."""
    if device.type == "cuda":
        return KINDS["float16"]
    return _codes_of_this_cpu() if device.type == "cpu" else KINDS["float32"]


@lru_cache
def _codes_of_this_cpu() -> Codes:
    if not is_measuring_allowed():
        return KINDS[best_codes({}, torch.cpu._is_vnni_supported())]
    found = measured_once("codes", (_ROWS, _COLUMNS, _DIMS), _measure)
    return KINDS.get(str(found.get("codes")), KINDS["float32"])


def best_codes(seconds: Mapping[str, float], bytes_are_fast: bool = False) -> str:
    """The type to use, by the seconds of products of int8 and float32, or without them by the flags of the CPU. Bytes
    use 8 bits if their products are correct, else 7 bits, else float32 is used."""
    if seconds:
        bytes_are_fast = seconds["int8"] <= _WORTH * seconds["float32"]
    right = [name for name in ("int8", "int7") if bytes_are_fast and multiplies_correctly(KINDS[name])]
    return right[0] if right else "float32"


def multiplies_correctly(codes: Codes) -> bool:
    """Whether products of the largest codes are correct for all signs."""
    signs = torch.tensor([1, -1], dtype=torch.int8).repeat(_ROWS // 2)[:, None]  # (256, 1)
    queries = (codes.limit * signs).expand(_ROWS, _DIMS).contiguous()
    found = torch._int_mm(queries, queries.T)
    return torch.equal(found, (signs.int() * signs.int().T) * (codes.limit**2 * _DIMS))


def _measure() -> dict[str, object]:
    queries, database = torch.ones(_ROWS, _DIMS), torch.ones(_COLUMNS, _DIMS)
    small_queries, small_database = queries.to(torch.int8), database.to(torch.int8)
    seconds = fastest_times(
        {
            "float32": lambda: torch.mm(queries, database.T),
            "int8": lambda: torch._int_mm(small_queries, small_database.T),
        },
        _ROUNDS,
    )
    return {"codes": best_codes(seconds), "seconds": seconds}
