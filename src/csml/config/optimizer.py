"""Settings of optimisation."""

from dataclasses import dataclass
from typing import Literal

from csml.config.fields import Settings, bounded, common, each, require

MAX_EPOCHS = 1_000_000
MAX_LR = 1e6


@dataclass(frozen=True)
class OptimizerConfig(Settings):
    """The optimizer and the schedule of its learning rate."""

    kind: Literal["sgd", "lars", "adamw"] = "sgd"
    """lars scales the step of each layer by the norm of its weights; use it for BYOL and for batches of thousands.
    Use adamw for a start from weights, and for ViTs; its learning rates are about a hundred times lower."""
    trust: float = bounded(0.001, above=0, limit=1e3)
    """LARS: size of a layer's step as a share of its weights, at learning rate 1."""
    lr_per_256: float = common(bounded(0.03, above=0, limit=MAX_LR))
    """Learning rate for a batch of 256 images; scaled linearly with the batch size. Halve it if the loss diverges."""
    momentum: float = bounded(0.9, low=0, below=1)
    """Momentum."""
    weight_decay: float = bounded(1e-4, low=0, limit=1e3)
    """Weight decay. LARS does not decay biases and BatchNorm."""
    warmup_epochs: float = bounded(0.0, low=0, limit=MAX_EPOCHS)
    """Epochs over which the learning rate rises linearly from 0."""
    schedule: Literal["cosine", "steps"] = "cosine"
    """cosine: half a cosine to 0 over the run. steps: multiply by 0.1 at each of the milestones."""
    milestones: tuple[int, ...] = each((), low=1, limit=MAX_EPOCHS, empty=True)
    """Epochs after which `steps` lowers the learning rate."""

    def check(self) -> None:
        require(self.schedule == "steps" or not self.milestones, "milestones", "these need --optimizer.schedule steps")
