"""Metrics of an epoch: summed on the device, read once, written as JSON lines and TensorBoard events."""

import importlib
import importlib.util
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from csml.distributed.world import World
from csml.extras import extra
from csml.files import atomic_write
from csml.runs.directory import RunDirectory

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


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


class MetricsWriter:
    """Appends one record per epoch to metrics.jsonl, and to TensorBoard.

    Args:
        run: the run directory.
        resume_epoch: epochs that are complete; records of later epochs are dropped.
        tensorboard: whether to write event files; None: if TensorBoard is installed.
    """

    def __init__(self, run: RunDirectory, resume_epoch: int, tensorboard: bool | None) -> None:
        self.file = run.metrics
        _drop_records_after(self.file, resume_epoch)
        self.board = _board(run.tensorboard, resume_epoch) if _wants_board(tensorboard) else None

    def write(self, record: dict[str, Any]) -> None:
        with self.file.open("a") as file:
            file.write(json.dumps(record) + "\n")
        if self.board is not None:
            for name, value in record.items():
                if name != "epoch" and value is not None:
                    self.board.add_scalar(name, value, record["epoch"])
            self.board.flush()

    def close(self) -> None:
        if self.board is not None:
            self.board.close()


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


def _wants_board(asked: bool | None) -> bool:
    if asked:
        with extra("tensorboard", "monitor.tensorboard"):
            importlib.import_module("tensorboard")
    return importlib.util.find_spec("tensorboard") is not None if asked is None else asked


def _board(folder: Path, resume_epoch: int) -> "SummaryWriter":
    from torch.utils.tensorboard import SummaryWriter  # an optional package, slow to import

    return SummaryWriter(str(folder), purge_step=resume_epoch + 1)
