"""Settings of BYOL."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from csml.config.fields import bounded, share
from csml.config.frameworks.base import FrameworkConfig


@dataclass(frozen=True)
class ByolConfig(FrameworkConfig):
    """BYOL: a predictor per level predicts the key; no queue and no negatives. The presets NAME-byol and NAME-csml-byol
    set its other settings: symmetric views, LARS, wide heads, different augmentation of keys."""

    title: ClassVar[str] = "BYOL"
    single: ClassVar[str] = "byol"
    cross: ClassVar[str] = "csml-byol"

    momentum: float = share(0.99)
    """Momentum m of the key encoder at the start; it rises to 1 over the run as half a cosine. Use less for short
    runs."""
    predictor_hidden: int | None = bounded(None, low=1, limit=65_536)
    """Width of the predictors; by default the width of the heads."""
    reduction: Literal["mean", "sum"] = "mean"
    """Reduction over the query groups, see contrast.reduction."""
