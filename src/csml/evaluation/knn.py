"""Weighted nearest-neighbour classification (docs/method.md#evaluation)."""

from collections.abc import Sequence
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

from csml.config import KnnConfig
from csml.data.failures import Failures
from csml.data.images import Images
from csml.distributed.world import World, world_of
from csml.evaluation.features import Features
from csml.evaluation.stored_features import stored_features
from csml.models.backbones import Backbone
from csml.models.raw_pixels import RawPixels
from csml.search.distributed import distributed_search
from csml.search.nearest_neighbors import nearest

TEMPERATURE = 0.07
"""Default temperature of the votes."""


def knn_predict(
    train_features: Tensor, train_labels: Tensor, features: Tensor, k: int, temperature: float = TEMPERATURE
) -> Tensor:
    """Predict labels by a vote of the k nearest training images, each with weight exp(cosine / temperature).

    Args:
        train_features: `(N, C)`, normalised here.
        train_labels: `(N,)` int64, 0 … classes − 1.
        features: `(Q, C)`, normalised here.
        k: at most N.
        temperature: a lower one gives more weight to the nearest images.

    Returns:
        Predicted labels `(Q,)`.
    """
    return vote(*nearest(features, train_features, k), train_labels, temperature)


def vote(indices: Tensor, similarities: Tensor, train_labels: Tensor, temperature: float) -> Tensor:
    """Neighbours and similarities `(Q, k)`, best first, and labels `(N,)` → predicted labels `(Q,)`."""
    return tally(indices, similarities, train_labels, int(train_labels.max()) + 1, temperature).argmax(dim=1)


def tally(indices: Tensor, similarities: Tensor, labels: Tensor, classes: int, temperature: float) -> Tensor:
    """Sum of the votes for each class, `(Q, classes)`; a neighbour without a label (−1) does not vote."""
    weights = torch.exp((similarities - similarities[:, :1]) / temperature)  # relative to the best, against overflow
    voters = labels[indices]  # (Q, k)
    weights = weights * (voters >= 0)
    return weights.new_zeros(len(indices), classes).scatter_add_(1, voters.clamp(min=0), weights)


def evaluate_knn(
    backbone: Backbone,
    train: Images,
    val: Images,
    config: KnnConfig,
    fabric: Fabric,
    what: str = "",
    quiet: bool = False,
) -> dict[str, Any]:
    """Extract features and classify the test images; a k above the number of training images is cut to it.

    Args:
        backbone: the network.
        train, val: labelled images that vote, and those that are classified.
        config: numbers of neighbours, stage, temperature, size of the images.
        fabric: device, precision and processes.
        what: name of the representation for progress bars.
        quiet: do not log images that cannot be read.

    Returns:
        The content of knn.json: `accuracy` by number of neighbours, and how many images were used.
    """
    backbone = backbone.to(fabric.device)
    kept, test = (
        stored_features(
            backbone,
            images,
            config.images,
            fabric,
            (config.stage,),
            description=f"{name} features{what and f', {what}'}",
            failures=Failures(images, config.images.max_failed, quiet=quiet),
            only_mine=True,
        )
        for name, images in (("training", train), ("test", val))
    )
    if isinstance(backbone, RawPixels):
        kept, test = centered(kept, test, config.stage, world_of(fabric))
    shares, trained_on, tested = knn_accuracy(kept, test, config.stage, config.k, config.temperature, fabric)
    return {
        "accuracy": {str(k): share for k, share in zip(config.k, shares, strict=True)},
        "stage": config.stage,
        "temperature": config.temperature,
        "trained_on": trained_on,
        "tested": tested,
        "failed": len(train) + len(val) - trained_on - tested,
    }


def centered(train: Features, test: Features, stage: int, world: World) -> tuple[Features, Features]:
    """Subtract the mean of the training features over all processes from both. This makes raw pixels a stronger
    baseline."""
    rows, _ = train.readable(stage)
    count = sum(world.all_gather_object(len(rows)))
    mean = world.all_reduce_sum(rows.double().sum(dim=0)) / max(1, count)  # (C,)
    moved = (own._replace(by_stage={stage: own.by_stage[stage] - mean.float()}) for own in (train, test))
    return next(moved), next(moved)


def knn_accuracy(
    train: Features, test: Features, stage: int, ks: Sequence[int], temperature: float, fabric: Fabric
) -> tuple[list[float], int, int]:
    """kNN accuracy on the test images for each k; a k above the number of training images is reduced to it.

    `train` and `test` are this process's shares.

    Returns:
        The accuracies, and the numbers of training and test images over all processes.
    """
    world, device = world_of(fabric), fabric.device
    (kept, labels), (queries, truth) = train.readable(stage), test.readable(stage)
    labels = torch.cat(list(world.broadcast_each(labels.to(device))))  # (N,)
    tested = sum(world.all_gather_object(len(truth)))
    most = min(max(ks), len(labels))
    indices, similarities = distributed_search(
        queries.to(device), kept.to(device), most, world
    )  # (Q, most), once for all k
    right = [(vote(indices[:, :k], similarities[:, :k], labels, temperature) == truth.to(device)).sum() for k in ks]
    return (world.all_reduce_sum(torch.stack(right)).double() / max(1, tested)).tolist(), len(labels), tested
