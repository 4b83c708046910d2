"""Weighted nearest-neighbour classification (METHOD §9)."""

import torch
from torch import Tensor

from csml.neighbors.search import nearest


def knn_predict(
    train_features: Tensor, train_labels: Tensor, features: Tensor, k: int, temperature: float = 0.07
) -> Tensor:
    """Predict labels by the vote of the k nearest training images, each weighing exp(cosine / temperature).

    Args:
        train_features: `(N, C)`, normalised here.
        train_labels: `(N,)` int64, 0 … classes − 1.
        features: `(Q, C)`.
        k: at most N.
        temperature: the lower, the more the very nearest count.

    Returns:
        predicted labels `(Q,)`.
    """
    return vote(*nearest(features, train_features, k), train_labels, temperature)


def vote(indices: Tensor, similarities: Tensor, train_labels: Tensor, temperature: float) -> Tensor:
    """Neighbours `(Q, k)`, best first, and the labels `(N,)` they are looked up in → predicted labels `(Q,)`."""
    return tally(indices, similarities, train_labels, int(train_labels.max()) + 1, temperature).argmax(dim=1)


def tally(indices: Tensor, similarities: Tensor, labels: Tensor, classes: int, temperature: float) -> Tensor:
    """The votes for each class `(Q, classes)`; a neighbour without a label (−1) has none."""
    weights = torch.exp((similarities - similarities[:, :1]) / temperature)  # relative to the best: no overflow
    voters = labels[indices]  # (Q, k)
    weights = weights * (voters >= 0)
    return weights.new_zeros(len(indices), classes).scatter_add_(1, voters.clamp(min=0), weights)


def knn_accuracy(train: Tensor, train_labels: Tensor, test: Tensor, test_labels: Tensor, k: int) -> float:
    """Share of `test` `(Q, C)` that `knn_predict` labels rightly; k is cut to what there is."""
    predicted = knn_predict(train, train_labels, test, min(k, len(train)))
    return float((predicted == test_labels).float().mean())
