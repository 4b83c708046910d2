"""Class predictions of all images, batch by batch."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor

from csml.config import ImagesConfig
from csml.data.images import Images
from csml.data.loading import center_batches, consecutive, worker_count
from csml.distributed.world import world_of
from csml.evaluation.accuracy import entropy
from csml.evaluation.features import pieces, prepare
from csml.models.backbones import FeatureNet, normalization
from csml.models.classifier import Classifier
from csml.models.merged_batchnorm import for_use
from csml.runs.trust import Trust


class PredictionBatch(NamedTuple):
    """Predictions for B consecutive images."""

    ids: Tensor
    """`(B,)`"""
    labels: Tensor
    """`(B,)`, the most probable class"""
    probabilities: Tensor
    """`(B,)`, the probability of that class"""
    entropies: Tensor
    """`(B,)`, in nats"""
    good: Tensor
    """`(B,)` bool: the image could be read"""
    similarities: Tensor
    """`(B,)`, cosine with the most similar labelled image; NaN if unknown"""


def predict(
    classifier: Classifier,
    images: Images,
    config: ImagesConfig,
    fabric: Fabric,
    batch_size: int = 256,
    trust: Trust | None = None,
) -> Iterator[PredictionBatch]:
    """Yield predictions for all images in the order of their ids; keeps nothing, for any number of images."""
    return world_of(fabric).map_in_order(
        consecutive(images, batch_size),
        partial(_predict, classifier.to(fabric.device).eval(), images, config, fabric, trust),
    )


@torch.no_grad()
def _predict(
    classifier: Classifier,
    images: Images,
    config: ImagesConfig,
    fabric: Fabric,
    trust: Trust | None,
    batches: Sequence[np.ndarray],
) -> Iterator[PredictionBatch]:
    device, by = fabric.device, normalization(classifier.backbone)
    net = FeatureNet(for_use(classifier.backbone))
    workers = worker_count(images, config.workers, device.type)
    for batch in center_batches(images, config, batches, workers, pin=device.type == "cuda"):
        with fabric.autocast():
            features = torch.cat(
                [net(prepare(piece, device, by))[4] for piece in pieces(batch.crops, device)]
            )  # (B, C)
            scores = classifier.scores(features)  # (B, classes)
        shares = scores.double().softmax(dim=1)
        probabilities, labels = shares.max(dim=1)
        similar = torch.full_like(probabilities, torch.nan) if trust is None else trust.similarities(features)
        columns = (labels.cpu(), probabilities.cpu(), entropy(shares).cpu(), batch.good, similar.cpu())
        yield PredictionBatch(batch.ids, *columns)
