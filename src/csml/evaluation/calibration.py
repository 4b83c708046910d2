"""Calibration of probabilities: a temperature from predictions on held-out images, and the calibration error."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

_LARGEST = 1e3
"""Largest temperature; the smallest is its inverse."""
_HALVINGS = 50


def fit_temperature(scores: Tensor, labels: Tensor, smoothing: float | None = None) -> float:
    """The T for which softmax(scores / T) has the lowest cross-entropy.

    Targets are smoothed by 1 / (rows + 2) by default, as in Platt's scaling: a few predictions that happen to be right
    must not give a probability of one.

    Args:
        scores: `(Q, classes)`, of images that the classifier was not trained on.
        labels: `(Q,)` int64.
        smoothing: share of each target that is spread over all classes.
    """
    scores = scores.double()
    share = 1 / (len(labels) + 2) if smoothing is None else smoothing
    wanted = (1 - share) * scores.gather(1, labels[:, None])[:, 0] + share * scores.mean(1)  # (Q,)

    def too_certain(temperature: float) -> bool:
        # The cross-entropy is convex in 1 / T; its slope is the mean score under softmax less that under the targets.
        shares = (scores / temperature).softmax(1)
        return bool(((shares * scores).sum(1) - wanted).mean() > 0)

    return _bisect(too_certain)


def temperature_for(scores: Tensor, probability: float) -> float:
    """The T for which the predicted classes of scores `(Q, classes)` have the given mean probability."""
    scores = scores.double()
    return _bisect(lambda temperature: bool((scores / temperature).softmax(1).amax(1).mean() > probability))


def _bisect(too_low: Callable[[float], bool]) -> float:
    """The temperature at which `too_low` turns from true to false."""
    low, high = -math.log(_LARGEST), math.log(_LARGEST)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if too_low(math.exp(middle)) else (low, middle)
    return math.exp((low + high) / 2)


def calibration_error(probabilities: Tensor, right: Tensor, bins: int = 15) -> float:
    """Expected calibration error: |accuracy − mean probability| in bins of equal width, weighted by size.

    Args:
        probabilities: `(Q,)`, of the predicted class.
        right: `(Q,)` bool: the prediction is right.
        bins: number of bins over (0, 1]; each includes its upper bound.
    """
    place = (probabilities.double() * bins).ceil().long().clamp(1, bins) - 1  # (Q,)
    gaps = torch.zeros(bins, dtype=torch.float64).index_add_(0, place, right.double() - probabilities.double())
    return float(gaps.abs().sum() / max(1, len(right)))
