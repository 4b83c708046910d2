"""Numbers of an epoch: summed on the device, read once, written as JSON lines and TensorBoard events."""

import json
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter

from csml.world import World


class EpochMeans:
    """Means over the steps of an epoch, weighted by batch size, without waiting for the device."""

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
        """What all processes have seen together."""
        joined = EpochMeans()
        mine = None if self.sums is None else self.sums.cpu()
        for names, sums, anchors in world.everyones((self.names, mine, self.anchors)):
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
    """How the keys `(N, D)` lie on the sphere.

    spread: deviation per dimension × √D; 1 when evenly spread, towards 0 on collapse.
    uniformity: log of the mean of exp(−2 ‖x − y‖²) over pairs; the lower, the more even (about −4 at best).
    """
    spread = keys.std(dim=0).mean() * math.sqrt(keys.shape[1])
    some = keys[:: max(1, len(keys) // sample)][:sample]  # (n, D)
    uniformity = torch.pdist(some).pow(2).mul(-2).exp().mean().log()
    return {"spread": float(spread), "uniformity": float(uniformity)}


class MetricsWriter:
    """Appends one record per epoch; on a resumed run, records past the resumed epoch are dropped first."""

    def __init__(self, file: Path, tensorboard: Path | None, resume_epoch: int) -> None:
        self.file = file
        kept = [record for record in read_metrics(file) if record["epoch"] <= resume_epoch]
        self.file.write_text("".join(_line(record) for record in kept))
        self.board = SummaryWriter(str(tensorboard), purge_step=resume_epoch + 1) if tensorboard else None

    def write(self, record: dict[str, Any]) -> None:
        with self.file.open("a") as file:
            file.write(_line(record))
        if self.board is not None:
            for name, value in record.items():
                if name != "epoch" and value is not None:
                    self.board.add_scalar(name, value, record["epoch"])
            self.board.flush()

    def close(self) -> None:
        if self.board is not None:
            self.board.close()


def read_metrics(file: Path) -> list[dict[str, Any]]:
    """All records of a run; a last line cut off by a crash is ignored."""
    records = []
    for line in file.read_text().splitlines() if file.exists() else []:
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return records


def _line(record: dict[str, Any]) -> str:
    return json.dumps(record) + "\n"
