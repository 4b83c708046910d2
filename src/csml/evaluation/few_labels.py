"""Classifiers on frozen features from a few labels, compared with others by cross-validation on the same folds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from csml.evaluation.calibration import fit_temperature, temperature_for
from csml.evaluation.logistic import Linear, fit_logistic

PENALTIES = (1e-1, 1e-2, 1e-3)
"""Candidate penalties of logistic regression, for features of unit length."""
DEFAULT_PENALTY = 1e-3
"""Penalty if there are too few labels to choose one."""
GAIN = 0.4
"""Growth of the log-odds of a right prediction when the number of labels doubles. Measured on two sets of photos with
ImageNet features: 0.3 to 0.5 between one and twenty labels a class."""
_NEVER = -10.0
"""Score of a class without labels, below every cosine."""


@dataclass(frozen=True)
class CrossValidated:
    """A method of learning from labels, and its scores on held-out labels."""

    how: str
    scores: Tensor
    """`(R, N, classes)`, out of fold, for each repetition of the folds"""
    held: Tensor
    """`(R, N)` bool: the label was held out in some fold"""
    labels: Tensor
    """`(N,)`"""
    kept: float
    """share of the labels that each fit was trained on"""
    penalty: float | None = None
    """penalty of logistic regression"""

    @property
    def temperature(self) -> float:
        """The temperature by which to divide the scores.

        It is fitted to the held-out labels, then lowered for the expected gain of all labels over the share `kept`.
        """
        scores = self.scores[self.held]
        fitted = fit_temperature(scores, self._truth(), smoothing=1 / (len(self.right()) + 2))
        probability = float((scores / fitted).softmax(1).amax(1).mean())
        return temperature_for(scores, min(0.99, probability + self.expected - self.accuracy))

    @property
    def accuracy(self) -> float:
        """Share of the held-out labels that are predicted correctly."""
        return float(self.right().mean())

    @property
    def covers_most(self) -> bool:
        """Whether at least half of the labels were held out; the only label of a class never is."""
        return float(self.held[0].double().mean()) >= 0.5

    @property
    def expected(self) -> float:
        """Expected accuracy with all labels instead of the share `kept`."""
        share = (float(self.right().sum()) + 1) / (len(self.right()) + 2)
        odds = share / (1 - share) * math.exp(GAIN * math.log2(1 / self.kept))
        return min(1.0, self.accuracy + odds / (1 + odds) - share)

    @property
    def error(self) -> float:
        """Standard error of the accuracy, with one correct and one wrong label added, so that it is never 0.

        Labels are the sample; repetitions of the folds do not enlarge it.
        """
        right = self.right()
        share = (float(right.sum()) + 1) / (len(right) + 2)
        return (share * (1 - share) / len(right)) ** 0.5

    @property
    def log_loss(self) -> float:
        """Cross-entropy of the calibrated probabilities."""
        truth, scores = self._truth(), self.scores[self.held]
        return float(F.cross_entropy(scores / fit_temperature(scores, truth), truth))

    def right(self) -> Tensor:
        """`(H,)`: share of the repetitions in which each of the H held-out labels was predicted correctly."""
        right = (self.scores.argmax(2) == self.labels).double()  # (R, N)
        return right[:, self.held[0]].mean(0)

    def _truth(self) -> Tensor:
        return self.labels.expand(len(self.scores), -1)[self.held]


def fit_frozen(
    how: str, features: Tensor, labels: Tensor, classes: int, penalties: Sequence[float] = PENALTIES
) -> list[Linear]:
    """Linear layers on unit features `(N, C)`: logistic regression with each penalty, or the means of the classes."""
    if how == "logistic":
        return fit_logistic(features, labels, classes, penalties)
    sums = features.new_zeros(classes, features.shape[1], dtype=torch.float64).index_add_(0, labels, features.double())
    present = torch.bincount(labels, minlength=classes) > 0  # (classes,)
    return [(F.normalize(sums), torch.where(present, 0.0, _NEVER).double())]


def try_frozen(how: str, features: Tensor, labels: Tensor, classes: int, folds: np.ndarray) -> CrossValidated:
    """Cross-validate a method of fitting a linear layer on unit features, with the penalty of lowest log-loss."""
    penalties = PENALTIES if how == "logistic" else (None,)
    scores = torch.zeros(len(penalties), *folds.shape, classes, dtype=torch.float64)
    held = torch.zeros(folds.shape, dtype=torch.bool)
    for number, kept, out in splits(folds):
        for each, (weight, bias) in enumerate(fit_frozen(how, features[kept], labels[kept], classes)):
            scores[each, number, out] = features[out].double() @ weight.T + bias
        held[number, out] = True
    kept = 1 - 1 / (folds.max() + 1)
    tried = [CrossValidated(how, scores[i], held, labels, kept, penalty) for i, penalty in enumerate(penalties)]
    return min(tried, key=lambda one: one.log_loss)


def splits(folds: np.ndarray) -> list[tuple[int, Tensor, Tensor]]:
    """Repetition, training ids and test ids for each fold of `folds` `(R, N)`."""
    return [
        (number, torch.from_numpy(np.flatnonzero(row != fold)), torch.from_numpy(np.flatnonzero(row == fold)))
        for number, row in enumerate(folds)
        for fold in range(row.max() + 1)
    ]


def choose(tried: Sequence[CrossValidated]) -> CrossValidated:
    """The first method that is within a standard error of the best.

    All use the same folds. Methods are given in order of preference.
    """
    best = max(tried, key=lambda one: one.accuracy)

    def ties(one: CrossValidated) -> bool:
        behind = best.right() - one.right()
        return float(behind.mean()) <= _standard_error(behind)

    return next(one for one in tried if ties(one))


def _standard_error(values: Tensor) -> float:
    return float(values.std(correction=1)) / len(values) ** 0.5 if len(values) > 1 else 0.0
