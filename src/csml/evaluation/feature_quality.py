"""Measures of feature quality, most of them without labels."""

import torch
import torch.nn.functional as F
from torch import Tensor

from csml.data.images import UNLABELED
from csml.evaluation.knn import TEMPERATURE, tally
from csml.search.nearest_neighbors import top_k


def rank_me(features: Tensor) -> float:
    """The effective number of dimensions of features `(N, C)`: exp of the entropy of their singular values (RankMe).

    It falls when a network collapses, and ranks networks of one family without labels.
    """
    values = torch.linalg.svdvals(features.double())
    total = float(values.sum())
    return float(torch.exp(torch.special.entr(values / total).sum())) if total > 0 else 0.0


def neighbor_agreement(one: Tensor, other: Tensor, k: int = 10) -> float:
    """Share of the k nearest neighbours shared by two sets of features `(N, C)`, `(N, D)` of the same N images."""
    first, second = (_nearest(features, k)[0] for features in (one, other))  # (N, k)
    return float((first[:, :, None] == second[:, None, :]).any(dim=2).double().mean())


def leave_one_out_knn(features: Tensor, labels: Tensor, k: int = 20) -> float | None:
    """Leave-one-out kNN accuracy: share of the labelled images that their k nearest labelled images classify correctly.

    Args:
        features: `(N, C)`.
        labels: `(N,)`, −1 if unknown.
        k: number of images that vote.

    Returns:
        The accuracy; None with fewer than two labelled images.
    """
    known = labels != UNLABELED
    features, labels = features[known], labels[known]
    if len(labels) < 2:
        return None
    indices, similarities = _nearest(features, min(k, len(labels) - 1))
    votes = tally(indices, similarities, labels, int(labels.max()) + 1, TEMPERATURE)
    return float((votes.argmax(dim=1) == labels).double().mean())


def _nearest(features: Tensor, k: int) -> tuple[Tensor, Tensor]:
    return top_k(F.normalize(features.float(), dim=1), min(k, len(features) - 1))
