"""The interface between the training loop and the tasks that it trains."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from csml.config import CheckpointConfig, HardwareConfig, MonitorConfig
from csml.data.failures import Failures
from csml.data.images import Images
from csml.distributed.world import Part, World
from csml.training.schedule import Timetable


class Batch(Protocol):
    """A piece of a batch, as the loop sees it."""

    @property
    def size(self) -> int:
        """number of images"""

    @property
    def failed(self) -> list[int]:
        """ids of images that could not be read"""

    @property
    def part(self) -> Part:
        """which rows of the whole batch these are"""


class Outcome(Protocol):
    """The result of the forward pass of a piece."""

    @property
    def loss(self) -> Tensor:
        """`()`, not yet differentiated"""

    @property
    def metrics(self) -> dict[str, Tensor]:
        """name → `()`, detached"""


class LossAndMetrics(NamedTuple):
    """The plain `Outcome`."""

    loss: Tensor
    metrics: dict[str, Tensor]


class Task(Protocol):
    """A training task: its batches, its step, and its end of an epoch. The loop does the rest.

    The loop counts epochs and steps and passes them in; a task does not count.
    """

    @property
    def command(self) -> str:
        """the verb that continues the run"""

    @property
    def images(self) -> Images:
        """the images to train on"""

    @property
    def fingerprint(self) -> str:
        """fingerprint of the data; a checkpoint for other data is refused"""

    @property
    def failures(self) -> Failures:
        """images that could not be read"""

    @property
    def timetable(self) -> Timetable:
        """length of the run and of its epochs, and the learning rate over it"""

    @property
    def smallest_batch(self) -> int:
        """rows per process that a step needs; a smaller batch is skipped"""

    @property
    def advice(self) -> str:
        """settings to try when the loss becomes non-finite"""

    @property
    def network(self) -> nn.Module:
        """everything that is saved and trained"""

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """over the network's parameters; each group has its peak learning rate as `initial_lr`"""

    @property
    def stopped(self) -> bool:
        """whether the run ends before its last epoch"""

    def batches(self, epoch: int, step: int) -> Iterator[Batch]:
        """The batches of an epoch from a step on, in pieces."""

    def before_epoch(self, epoch: int) -> None:
        """Called before an epoch, also when resuming in the middle of it."""

    def before_step(self, progress: float) -> None:
        """Called before each step with the completed share of the run."""

    def train_step(self, network: Any, batch: Any, generator: torch.Generator) -> Outcome:
        """The forward pass of a piece. `network` is the task's own, as prepared for device and processes."""

    def after_backward(self, outcomes: list[Any]) -> None:
        """Called with the outcomes of all pieces of a batch, after backward and before the optimizer's step."""

    def end_epoch(self, epoch: int, record: dict[str, Any]) -> str:
        """Test, and add to the record of metrics after `epoch` completed epochs. Returns a line for the log."""

    def save_weights(self) -> None:
        """Write the weights to use; called on rank 0 after every epoch."""

    def where(self, epoch: int, step: int) -> str:
        """The progress of the run in words."""

    def state_dict(self) -> dict[str, Any]:
        """State for a checkpoint, in addition to network, optimizer and the loop's own state."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore from a checkpoint; raise CsmlError if it belongs to another task."""


class LoopConfig(Protocol):
    """The settings that the loop reads; every config of a verb that trains has them."""

    @property
    def data(self) -> str: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def checkpoint(self) -> CheckpointConfig: ...
    @property
    def monitor(self) -> MonitorConfig: ...
    @property
    def hardware(self) -> HardwareConfig: ...


LOWER_LEARNING_RATE = "try half of optimizer.lr_per_256, or optimizer.warmup_epochs 1"
"""Advice of the tasks with an `optimizer` section."""


def epoch_and_step(timetable: Timetable, epoch: int, step: int) -> str:
    """`epoch 3/15, step 4`, while the third epoch is trained."""
    return f"epoch {epoch + 1}/{timetable.epochs}, step {step}"


def split_batch_rows(rows: int, hardware: HardwareConfig, world: World, smallest: int) -> Iterator[tuple[slice, Part]]:
    """This process's rows of each piece of a batch; a single piece if several would be too small to train on."""
    pieces = hardware.accumulate
    enough = rows // (pieces * world.size) >= smallest
    return world.split_batch(rows, pieces if enough else 1)
