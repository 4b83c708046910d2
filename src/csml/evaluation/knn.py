"""Weighted nearest-neighbour classification (METHOD §9)."""

from collections.abc import Sequence

import torch
from lightning_fabric import Fabric
from torch import Tensor

from csml.evaluation.features import Features
from csml.neighbors.across import search_across
from csml.neighbors.search import nearest
from csml.world import world_of

TEMPERATURE = 0.07


def knn_predict(
    train_features: Tensor, train_labels: Tensor, features: Tensor, k: int, temperature: float = TEMPERATURE
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


def knn_accuracy(
    train: Features, test: Features, stage: int, ks: Sequence[int], temperature: float, fabric: Fabric
) -> tuple[list[float], int, int]:
    """Share of the test images that `knn_predict` labels rightly, for each k, which is cut to what there is.

    `train` and `test` are this process's shares of them. Also returns how many there are of each, of all processes.
    """
    world, device = world_of(fabric), fabric.device
    (kept, labels), (queries, truth) = train.readable(stage), test.readable(stage)
    labels = torch.cat(list(world.parts(labels.to(device))))  # (N,)
    tested = sum(world.everyones(len(truth)))
    most = min(max(ks), len(labels))
    indices, similarities = search_across(queries.to(device), kept.to(device), most, world)  # (Q, most), once for all k
    right = [(vote(indices[:, :k], similarities[:, :k], labels, temperature) == truth.to(device)).sum() for k in ks]
    return (world.sum(torch.stack(right)).double() / max(1, tested)).tolist(), len(labels), tested
