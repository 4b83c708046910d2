"""bf16 must not kill the process on a machine that offers AMX by halves."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from csml.amx_guard import avoid_incomplete_amx


@pytest.mark.parametrize(
    ("pages", "flags", "limited"),
    [
        (28, "avx512f avx512_bf16 amx_bf16 amx_tile", True),
        (32, "avx512f avx512_bf16 amx_bf16 amx_tile", False),
        (28, "avx512f avx512_bf16", False),
    ],
)
def test_torch_is_kept_off_tiles_of_unknown_size_only(
    pages: int, flags: str, limited: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\ncpuid level\t: {pages}\nflags\t\t: fpu {flags}\n\n")
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    avoid_incomplete_amx(tmp_path / "cpuinfo")
    assert ("ONEDNN_MAX_CPU_ISA" in os.environ) == limited
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    avoid_incomplete_amx(tmp_path / "cpuinfo")
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == "AVX2"


def test_a_system_without_cpuinfo_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    avoid_incomplete_amx(tmp_path / "missing")
    assert "ONEDNN_MAX_CPU_ISA" not in os.environ


def test_this_machine_multiplies_in_bf16_once_csml_is_imported() -> None:
    code = "import csml, torch; x = torch.ones(64, 64, dtype=torch.bfloat16); print((x @ x).sum().item())"
    environment = {name: value for name, value in os.environ.items() if name != "ONEDNN_MAX_CPU_ISA"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout) == (0, "262144.0\n"), done.stderr
