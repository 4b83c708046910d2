"""Suggested labels: by a classifier, or by kNN votes of the existing labels; with an estimate of their accuracy."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from csml.evaluation.accuracy import entropy
from csml.evaluation.knn import TEMPERATURE, tally
from csml.explorer.network_view import ClassProbabilities
from csml.search.nearest_neighbors import nearest, top_k

_BLOCK = 8192
_VOTERS = 20
_JUDGES = 5
"""Number of neighbours that vote in the leave-one-out estimate: few, because small classes have few labels."""
_MOST_JUDGED = 5000
_ENOUGH = 0.98
"""Recall of the search among many images."""
NOTHING = -1
"""Stands for a missing label or suggestion."""


@dataclass(frozen=True)
class Suggestions:
    """A suggested label for each of N images."""

    classes: tuple[str, ...]
    labels: np.ndarray
    """int32 `(N,)`, indices into `classes`, −1 without a suggestion"""
    probabilities: np.ndarray
    """float32 `(N,)`, of the suggested label; 0 without one"""
    entropies: np.ndarray
    """float32 `(N,)`, in nats; −1 without a suggestion"""
    source: str
    """source of the suggestions, for display"""


@dataclass(frozen=True)
class Estimate:
    """Leave-one-out estimate of the accuracy of kNN votes, from the existing labels."""

    accuracy: float
    error: float
    """standard error"""
    judged: int


def from_probabilities(classes: tuple[str, ...], blocks: Iterable[Tensor], source: str) -> Suggestions:
    """From probabilities `(N, classes)`, some rows at a time; a row of zeros has no suggestion."""
    labels, probabilities, entropies = [], [], []
    for block in blocks:
        best, label = block.max(1)
        known = best > 0
        labels.append(label.where(known, NOTHING).numpy().astype(np.int32))
        probabilities.append(best.numpy().astype(np.float32))
        entropies.append(entropy(block.double()).where(known, float(NOTHING)).numpy().astype(np.float32))
    return Suggestions(
        classes, np.concatenate(labels), np.concatenate(probabilities), np.concatenate(entropies), source
    )


def by_classifier(named: ClassProbabilities, source: str) -> Suggestions:
    """Suggestions of a classifier."""
    return from_probabilities(named.classes, named.probabilities.split(_BLOCK), source)


def by_votes(features: Tensor, codes: Tensor, classes: tuple[str, ...], readable: Tensor, source: str) -> Suggestions:
    """Suggestions by kNN votes of the most similar labelled images.

    Args:
        features: `(N, C)`, of any precision.
        codes: `(N,)` int64, indices into `classes`, −1 without a label.
        classes: names.
        readable: bool `(N,)`; others get no suggestion.
        source: description of the source.
    """
    known = (codes >= 0).nonzero()[:, 0]
    bank, labels = features[known], codes[known]

    def shares(rows: Tensor, seen: Tensor) -> Tensor:
        votes = tally(*nearest(rows, bank, min(_VOTERS, len(known))), labels, len(classes), TEMPERATURE)
        return votes / votes.sum(1, keepdim=True) * seen[:, None]  # (b, classes)

    blocks = zip(features.split(_BLOCK), readable.split(_BLOCK), strict=True)
    return from_probabilities(classes, (shares(rows, seen) for rows, seen in blocks), source)


def by_neighbors_classes(features: Tensor, codes: Tensor, classes: tuple[str, ...], readable: Tensor) -> Suggestions:
    """Suggestions by kNN votes of the 20 most similar images, if the data has classes."""
    indices, similarities = top_k(features, min(_VOTERS, len(features) - 1), recall=_ENOUGH)
    matrix = tally(indices, similarities, codes, len(classes), TEMPERATURE)
    total = matrix.sum(1, keepdim=True)
    matrix = matrix / total.clamp(min=1e-9) * readable[:, None]
    return from_probabilities(classes, matrix.split(_BLOCK), f"the {_VOTERS} most similar images of known class")


def estimate(features: Tensor, codes: Tensor) -> Estimate | None:
    """Hide each label in turn and let the others vote; None without two classes that have two labels each.

    The only label of a class votes but is not tested, because it could never be predicted.

    Args:
        features: `(L, C)` of the labelled images.
        codes: `(L,)` int64 ≥ 0.
    """
    if len(codes) > _MOST_JUDGED:
        chosen = torch.randperm(len(codes), generator=torch.Generator().manual_seed(0))[:_MOST_JUDGED]
        features, codes = features[chosen], codes[chosen]
    counts = torch.bincount(codes) if len(codes) else torch.zeros(0)
    if int((counts > 1).sum()) < 2:
        return None
    judged = (counts[codes] > 1).nonzero()[:, 0]
    k = min(_JUDGES, len(codes) - 1)
    found = nearest(features[judged], features, k, exclude=judged)
    right = tally(*found, codes, int(codes.max()) + 1, TEMPERATURE).argmax(1) == codes[judged]
    share = (float(right.sum()) + 1) / (len(judged) + 2)  # one correct and one wrong label added: error is never 0
    return Estimate(float(right.float().mean()), (share * (1 - share) / len(judged)) ** 0.5, len(judged))
