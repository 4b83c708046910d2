"""Peak memory of the loss against the logits written out, each in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.figure import Figure
from csml.config import ContrastConfig
from csml.losses import multi_positive_info_nce

B, N, D, P, LEVELS = 256, 65_536, 128, 2, 3


def loss_memory() -> list[Figure]:
    """B 256, N 65 536, 3 levels, one query with two positives, forward and backward."""
    ours, written_out = (_peak_of(side) for side in ("ours", "written out"))
    return [
        Figure(
            "extra memory of the loss over written-out (B, P, N + 1) logits",
            ours / written_out,
            "≤ 0.2",
            f"{ours:.0f} against {written_out:.0f} MB",
        )
    ]


def _peak_of(side: str) -> float:
    """Megabytes by which the peak rises, in a fresh process."""
    # Large blocks go back to the system when they are freed, so that the peak is that of what was needed at once.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    command = [sys.executable, "-m", "benchmarks.memory", side]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return float(done.stdout)


def _measure(side: str) -> float:
    loss = _ours if side == "ours" else _written_out
    unit = [F.normalize(torch.randn(*shape), dim=-1) for shape in ((LEVELS, B, D), (LEVELS, P, B, D), (LEVELS, N, D))]
    loss(unit[0][:, :4].requires_grad_(), unit[1][:, :, :4], unit[2][:, :64]).backward()  # threads start
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts again from what is held now
    before = _high_water()
    loss(unit[0].requires_grad_(), unit[1], unit[2]).backward()
    return (_high_water() - before) / 2**10


def _ours(queries: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    chunk = ContrastConfig().loss_chunk
    half = torch.tensor([0.5, 0.5])
    levels = zip(queries, positives, negatives, strict=True)
    return torch.stack([multi_positive_info_nce(q, p, half, n, 0.2, chunk=chunk).mean() for q, p, n in levels]).sum()


def _written_out(queries: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    total = torch.zeros(())
    for q, p, n in zip(queries, positives, negatives, strict=True):
        pulled = torch.einsum("bd,pbd->bp", q, p)[:, :, None]  # (B, P, 1)
        pushed = (q @ n.T)[:, None].expand(-1, P, -1)  # (B, P, N)
        logits = torch.cat([pulled, pushed], dim=2) / 0.2  # (B, P, N + 1)
        total = total + F.cross_entropy(logits.flatten(0, 1), torch.zeros(len(q) * P, dtype=torch.long))
    return total


def _high_water() -> int:
    """Kilobytes."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))


if __name__ == "__main__":
    print(_measure(sys.argv[1]))
