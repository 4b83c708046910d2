"""Metrics of an epoch: summed on the device, read once, and kept as lines of JSON in the run directory."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from csml.distributed.world import World
from csml.files import atomic_write


class EpochMeans:
    """Means over the steps of an epoch, weighted by batch size. Adding does not wait for the device."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.sums: Tensor | None = None
        self.anchors = 0

    def add(self, metrics: dict[str, Tensor], anchors: int) -> None:
        values = torch.stack(list(metrics.values())).double() * anchors  # one vector: two kernels instead of eighty
        self.names = list(metrics)
        self.sums = values if self.sums is None else self.sums + values
        self.anchors += anchors

    def over(self, world: World) -> "EpochMeans":
        """The means over the steps of all processes."""
        joined = EpochMeans()
        local = None if self.sums is None else self.sums.cpu()
        for names, sums, anchors in world.all_gather_object((self.names, local, self.anchors)):
            joined.anchors += anchors
            if sums is not None:
                joined.names, joined.sums = names, sums if joined.sums is None else joined.sums + sums
        return joined

    def means(self) -> dict[str, float]:
        if self.sums is None:
            return {}
        return dict(zip(self.names, (self.sums / self.anchors).tolist(), strict=True))

    def state_dict(self) -> dict[str, Any]:
        return {"names": self.names, "sums": self.sums, "anchors": self.anchors}

    def load_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        self.names, self.anchors = state["names"], state["anchors"]
        self.sums = None if state["sums"] is None else state["sums"].to(device)


@torch.no_grad()
def embedding_statistics(keys: Tensor, sample: int = 1024) -> dict[str, float]:
    """How the keys `(N, D)` are distributed on the sphere.

    spread: standard deviation per dimension × √D; 1 for an even distribution, towards 0 on collapse.
    uniformity: log of the mean of exp(−2 ‖x − y‖²) over pairs; lower is more even (about −4 at best).
    """
    spread = keys.std(dim=0).mean() * math.sqrt(keys.shape[1])
    some = keys[:: max(1, len(keys) // sample)][:sample]  # (n, D)
    uniformity = torch.pdist(some).pow(2).mul(-2).exp().mean().log()
    return {"spread": float(spread), "uniformity": float(uniformity)}


class JsonLines:
    """The logger that every run has: one record per epoch in metrics.jsonl. See `runs/loggers.py` for others.

    Args:
        file: metrics.jsonl.
        resume_epoch: epochs that are complete; records of later epochs are dropped.
    """

    def __init__(self, file: Path, resume_epoch: int) -> None:
        self.file = file
        _drop_records_after(file, resume_epoch)

    def write(self, record: Mapping[str, Any]) -> None:
        with self.file.open("a") as file:
            file.write(json.dumps(record) + "\n")

    def close(self) -> None:
        """Every record is on disk already."""


def read_metrics(file: Path) -> list[dict[str, Any]]:
    """All records of a run; a last line that a crash cut off is ignored."""
    return [record for _, record in _lines(file)]


def _lines(file: Path) -> list[tuple[str, dict[str, Any]]]:
    """The whole lines of a metrics file, each with its record."""
    found = []
    for line in file.read_text().splitlines() if file.exists() else []:
        try:
            found.append((line, json.loads(line)))
        except json.JSONDecodeError:
            continue
    return found


def _drop_records_after(file: Path, epoch: int) -> None:
    """Truncate by replacing the file, so that a kill in between loses nothing."""
    text = "".join(f"{line}\n" for line, record in _lines(file) if record["epoch"] <= epoch)
    if not file.exists() or file.read_text() != text:
        with atomic_write(file) as temporary:
            temporary.write_text(text)
