"""Pooled features of every image of a data set: eval mode, centre crop, no augmentation."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from lightning_fabric import Fabric
from torch import Tensor
from torchvision.models.resnet import ResNet

from csml.config.schema import ImagesConfig
from csml.data.failures import Failures
from csml.data.images import Images
from csml.data.loading import center_batches, worker_count
from csml.models.backbones import FeatureNet
from csml.progress import watched
from csml.views.augment import normalize


class Features(NamedTuple):
    """Features of N images in the order of their ids."""

    by_stage: dict[int, Tensor]
    """`(N, C)` per stage, float32, or L2-normalised float16; zeros where the image could not be read"""
    good: Tensor
    """`(N,)` bool: the image could be read"""
    labels: Tensor
    """`(N,)` int64, −1 where unknown"""

    def subset(self, ids: np.ndarray) -> "Features":
        rows = torch.from_numpy(ids)
        return Features({s: values[rows] for s, values in self.by_stage.items()}, self.good[rows], self.labels[rows])


def extract_features(
    backbone: ResNet,
    images: Images,
    config: ImagesConfig,
    fabric: Fabric,
    stages: tuple[int, ...] = (4,),
    batch_size: int = 256,
    description: str = "features",
    failures: Failures | None = None,
    unit_halves: bool = False,
) -> Features:
    """Run `backbone` over all images; its mode is left as it was found. Unreadable images are noted in `failures`.

    `unit_halves` keeps L2-normalised rows in float16, half the memory: all that cosine similarity needs.
    """
    failures = failures or Failures(images, config.max_failed)
    stored: dict[int, Tensor] = {}
    good = torch.zeros(len(images), dtype=torch.bool)
    batches = feature_batches(backbone, images, config, fabric, stages, batch_size)
    for batch in watched(batches, description, total=-(-len(images) // batch_size)):
        failures.add(batch.ids[~batch.good].tolist())
        rows = slice(int(batch.ids[0]), int(batch.ids[-1]) + 1)
        for stage, features in batch.by_stage.items():
            if unit_halves:
                features = F.normalize(features, dim=1).to(torch.float16)
            if stage not in stored:
                stored[stage] = torch.zeros(len(images), features.shape[1], dtype=features.dtype)
            stored[stage][rows] = features.cpu()
        good[rows] = batch.good
    return Features(stored, good, torch.from_numpy(images.labels))


class FeatureBatch(NamedTuple):
    """Features of B consecutive images."""

    ids: Tensor
    """`(B,)`"""
    by_stage: dict[int, Tensor]
    """`(B, C)` per stage, float32, on the device; zeros where the image could not be read"""
    good: Tensor
    """`(B,)` bool: the image could be read"""


@torch.no_grad()
def feature_batches(
    backbone: ResNet,
    images: Images,
    config: ImagesConfig,
    fabric: Fabric,
    stages: tuple[int, ...] = (4,),
    batch_size: int = 256,
) -> Iterator[FeatureBatch]:
    """The same, one batch at a time: nothing is kept, so that there may be any number of images."""
    device = fabric.device
    net = FeatureNet(backbone, stages)
    workers = worker_count(images, config.workers, device.type)
    was_training = backbone.training
    backbone.eval()
    for batch in center_batches(images, config.size, config.eval_crop, batch_size, workers, pin=device.type == "cuda"):
        with fabric.autocast():
            pooled = net(prepare(batch.crops, device))
        good = batch.good[:, None].to(device, non_blocking=True)
        yield FeatureBatch(batch.ids, {stage: f.float() * good for stage, f in pooled.items()}, batch.good)
    backbone.train(was_training)


def prepare(crops: Tensor, device: torch.device) -> Tensor:
    """uint8 `(B, 3, S, S)` → normalised float32 on the device."""
    return normalize(crops.to(device, non_blocking=True).float().div_(255))
