"""Metrics of an epoch: summed on the device, read once, and written as lines of JSON to the run directory."""

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from csml.distributed.world import World
from csml.errors import CsmlError, reason


class EpochMeans:
    """Means over the steps of an epoch, weighted by batch size. Adding does not synchronise with the device."""

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
    """The logger of every run: appends one record per epoch to metrics.jsonl and never rewrites any. See
    `runs/loggers.py` for others.

    Args:
        file: metrics.jsonl.
        resume_epoch: number of completed epochs; records of later epochs are truncated.
    """

    def __init__(self, file: Path, resume_epoch: int) -> None:
        self.file = file
        file.parent.mkdir(parents=True, exist_ok=True)
        _cut_off_after(file, resume_epoch)

    def write(self, record: Mapping[str, Any]) -> None:
        with self.file.open("a") as file:
            file.write(json.dumps(record) + "\n")
            file.flush()
            os.fsync(file.fileno())  # before the checkpoint that counts this epoch as complete

    def close(self) -> None:
        """Nothing to do: every record is already on disk."""


def read_metrics(file: Path) -> list[dict[str, Any]]:
    """All records of a run; truncated or invalid lines are ignored."""
    return [record for record, _ in _records(file)]


def _records(file: Path) -> Iterator[tuple[dict[str, Any], int]]:
    """Each record, and the file position where its line ends."""
    place = 0
    try:
        content = file.read_bytes() if file.exists() else b""
    except OSError as error:
        raise CsmlError(f"{file} cannot be read ({error.strerror or reason(error)})") from error
    for line in content.splitlines(keepends=True):
        place += len(line)
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and isinstance(record.get("epoch"), int):
            yield record, place


def _cut_off_after(file: Path, epoch: int) -> None:
    """Truncate the file after the records of completed epochs; truncation is atomic."""
    end = max((place for record, place in _records(file) if record["epoch"] <= epoch), default=0)
    with file.open("ab") as opened:
        opened.truncate(end)
        if end and file.read_bytes()[-1:] != b"\n":
            opened.write(b"\n")
        os.fsync(opened.fileno())
