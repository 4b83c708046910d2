"""For runs that start from weights: compares the backbone with its start, and chooses a point between the two.

docs/method.md#weights
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

from csml.config import STAGES, ImagesConfig
from csml.data.failures import Failures
from csml.data.images import Images, evenly_spaced
from csml.evaluation.feature_quality import leave_one_out_knn, neighbor_agreement, rank_me
from csml.evaluation.features import extract_features
from csml.models.backbones import Backbone

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Compared points between the start (0) and the end (1) of a run."""
_SAMPLE = 1024
"""Number of images for the comparison; one standard error of an accuracy is at most 1.6 points."""
_LEAST_RANK, _LEAST_AGREEMENT = 0.5, 0.1
"""Without labels, a backbone counts as damaged if its RankMe falls below this share of the start's, or if fewer of its
neighbours than this are still the start's."""


@dataclass(frozen=True)
class Signals:
    """Measures of feature quality."""

    rank: float
    """RankMe: the effective number of dimensions"""
    agreement: float
    """share of the ten nearest neighbours that are the same as at the start"""
    knn20: float | None
    """leave-one-out 20-NN accuracy on labelled training images; None without labels"""


def compared_images(images: int, epochs: int) -> int:
    """Number of images that all comparisons of a run process: before it, after each epoch, and between start and
    end."""
    return min(images, _SAMPLE) * (1 + epochs + len(SHARES[1:-1]))


class StartComparison:
    """Compares backbones with the one that a run started from, on a fixed sample of its training images.

    Args:
        images: the labelled training images, or all of them if there are no labels.
        config: size of the centre crop.
        fabric: device and processes.
        start: the backbone at the start.
    """

    def __init__(self, images: Images, config: ImagesConfig, fabric: Fabric, start: Backbone) -> None:
        self.sample, self.config, self.fabric = evenly_spaced(images, _SAMPLE), config, fabric
        self.start_weights = {name: value.clone() for name, value in start.state_dict().items()}
        self.start_features = self._features(start.to(fabric.device))
        self.start = self._signals(self.start_features)

    def signals(self, backbone: Backbone) -> Signals:
        """The signals of a backbone, compared with the start."""
        return self._signals(self._features(backbone))

    def is_worse(self, now: Signals) -> bool:
        """Whether a backbone is worse than the start: with labels by more than one standard error, without labels if
        damaged."""
        if now.knn20 is None or self.start.knn20 is None:
            return now.rank < _LEAST_RANK * self.start.rank or now.agreement < _LEAST_AGREEMENT
        return now.knn20 < self.start.knn20 - self._error(self.start.knn20)

    def choose(self, backbone: Backbone, at_end: Signals | None = None) -> tuple[float, dict[str, Any]]:
        """Load the best point between the start and the weights of `backbone` into it.

        With labels it is the point farthest from the start whose 20-NN accuracy is within a standard error of the
        highest and not below the start's; without labels the farthest that is not damaged.

        Args:
            backbone: the weights at the end of the run.
            at_end: its signals, if known.

        Returns:
            The position of the point between start and end, and the comparison.
        """
        end = {name: value.clone() for name, value in backbone.state_dict().items()}
        found: dict[float, Signals] = {SHARES[0]: self.start}
        for share in SHARES[1:]:
            backbone.load_state_dict(interpolated(self.start_weights, end, share))
            found[share] = at_end if at_end is not None and share == SHARES[-1] else self.signals(backbone)
        if self.start.knn20 is not None:
            accuracy = {share: signals.knn20 or 0.0 for share, signals in found.items()}
            highest = max(accuracy.values())
            least = max(self.start.knn20, highest - self._error(highest))
            best = max(share for share in SHARES if accuracy[share] >= least)
            why = "no other point has a better 20-NN accuracy on labelled training images, beyond a standard error"
        else:
            best = max(share for share in SHARES if share == 0 or not self.is_worse(found[share]))
            why = "the features stay varied, and keep enough of the neighbours of the start"
        backbone.load_state_dict(interpolated(self.start_weights, end, best))
        compared = {f"{share:g}": asdict(signals) for share, signals in found.items()}
        return best, {"share": best, "why": why, "images": len(self.sample), "compared": compared}

    def _error(self, accuracy: float) -> float:
        """Standard error of an accuracy on the sample."""
        return math.sqrt(accuracy * (1 - accuracy) / len(self.sample))

    def _features(self, backbone: Backbone) -> Tensor:
        """`(n, F)`, zeros where an image could not be read."""
        nothing_fails = Failures(self.sample, 1.0, quiet=True)  # training counts and reports unreadable images
        features = extract_features(backbone, self.sample, self.config, self.fabric, failures=nothing_fails)
        return features.by_stage[STAGES[-1]]

    def _signals(self, features: Tensor) -> Signals:
        labels = torch.from_numpy(self.sample.labels)
        return Signals(
            rank_me(features), neighbor_agreement(self.start_features, features), leave_one_out_knn(features, labels)
        )


def interpolated(start: dict[str, Tensor], end: dict[str, Tensor], share: float) -> dict[str, Tensor]:
    """Weights on the straight line from `start` to `end`; counters are those of the end."""
    return {
        name: torch.lerp(start[name].to(value.device), value, share) if value.is_floating_point() else value
        for name, value in end.items()
    }
