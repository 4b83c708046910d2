"""Settings of SimSiam."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from csml.config.fields import bounded
from csml.config.frameworks.base import FrameworkConfig


@dataclass(frozen=True)
class SimSiamConfig(FrameworkConfig):
    """SimSiam: a predictor per level predicts the key, which the same encoder computes without gradient; no momentum
    encoder, no queue and no negatives. The presets NAME-simsiam and NAME-csml-simsiam set its other settings: symmetric
    views and wide heads."""

    title: ClassVar[str] = "SimSiam"
    single: ClassVar[str] = "simsiam"
    cross: ClassVar[str] = "csml-simsiam"

    predictor_hidden: int | None = bounded(None, low=1, limit=65_536)
    """Width of the predictors; by default a quarter of the width of the heads: 512 with the paper's 2048."""
    reduction: Literal["mean", "sum"] = "mean"
    """Reduction over the query groups, see contrast.reduction."""
