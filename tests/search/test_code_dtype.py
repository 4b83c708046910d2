"""The type of codes is one whose products are right on this CPU, also where libraries may not use all of it."""

import os
import subprocess
import sys

import pytest
import torch

from csml.search.code_dtype import KINDS, best_codes, codes_for, multiplies_correctly

_RIGHT = """
import torch
from csml.search.code_dtype import codes_for
codes = codes_for(torch.device("cpu"))
generator = torch.Generator().manual_seed(0)
if codes.limit:
    one, two = torch.randint(-codes.limit, codes.limit + 1, (2, 300, 256), generator=generator, dtype=torch.int8)
    assert torch.equal(torch._int_mm(one, two.T).double(), one.double() @ two.double().T), codes.name
    one.fill_(codes.limit)
    assert int(torch._int_mm(one, one.T)[0, 0]) == 256 * codes.limit**2, codes.name
print(codes.name)
"""


@pytest.mark.parametrize("limit", ["AVX2", "AVX512_CORE", "ALL"])
@pytest.mark.parametrize("measured", ["0", "1"])
def test_products_of_the_chosen_codes_are_right(limit: str, measured: str) -> None:
    """With AVX2 alone products of 8 bits are clipped, whatever the CPU says of itself."""
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": limit, "CSML_MEASURE": measured}
    done = subprocess.run([sys.executable, "-c", _RIGHT], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in KINDS


def test_bytes_are_taken_only_where_they_are_faster() -> None:
    assert best_codes({"int8": 1.0, "float32": 1.0}) == "float32"
    assert best_codes({"int8": 0.4, "float32": 1.0}) in ("int8", "int7")
    assert best_codes({}, bytes_are_fast=False) == "float32"


def test_seven_bits_are_at_most_as_hard_to_multiply_as_eight() -> None:
    assert multiplies_correctly(KINDS["int7"]) or not multiplies_correctly(KINDS["int8"])


def test_a_gpu_takes_half_precision() -> None:
    assert codes_for(torch.device("cuda")).dtype == torch.float16
