"""Pooled features of every image of a data set: eval mode, centre crop, no augmentation."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from lightning_fabric import Fabric
from torch import Tensor
from torchvision.models.resnet import ResNet

from csml.config.schema import ImagesConfig
from csml.data.failures import Failures
from csml.data.images import Images, Subset
from csml.data.loading import center_batches, consecutive, worker_count
from csml.models.backbones import FeatureNet, stage_channels
from csml.progress import watched
from csml.views.augment import normalize
from csml.world import world_of


class Features(NamedTuple):
    """Features of N consecutive images, as a rule all there are, in the order of their ids."""

    by_stage: dict[int, Tensor]
    """`(N, C)` per stage, float32, or L2-normalised float16; zeros where the image could not be read"""
    good: Tensor
    """`(N,)` bool: the image could be read"""
    labels: Tensor
    """`(N,)` int64, −1 where unknown"""
    start: int = 0
    """id of the first"""

    def subset(self, ids: np.ndarray) -> "Features":
        """Those of the images with the given ids that are here."""
        here = (ids >= self.start) & (ids < self.start + len(self.good))
        rows = torch.from_numpy(ids[here] - self.start)
        return Features({s: values[rows] for s, values in self.by_stage.items()}, self.good[rows], self.labels[rows])

    def readable(self, stage: int) -> tuple[Tensor, Tensor]:
        """Features `(G, C)` and labels `(G,)` of what could be read."""
        return self.by_stage[stage][self.good], self.labels[self.good]


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
    only_mine: bool = False,
) -> Features:
    """Run `backbone` over all images; its mode is left as it was found. Unreadable images are noted in `failures`.

    `unit_halves` keeps L2-normalised rows in float16, half the memory: all that cosine similarity needs. Several
    processes share the work, and then exchange the features; with `only_mine` each keeps its own.
    """
    failures = failures or Failures(images, config.max_failed)
    world = world_of(fabric)
    share = world.share(len(images))
    mine = images if world.size == 1 else Subset(images, np.arange(share.start, share.stop))
    good, stored = torch.zeros(len(mine), dtype=torch.bool), {}
    channels = stage_channels(backbone)
    for stage in stages:
        kind = torch.float16 if unit_halves else torch.float32
        stored[stage] = torch.zeros(len(mine), channels[stage], dtype=kind)
    batches = _feature_batches(backbone, mine, config, fabric, stages, consecutive(mine, batch_size))
    for batch in watched(batches, description, total=-(-len(mine) // batch_size)):
        rows = slice(int(batch.ids[0]), int(batch.ids[-1]) + 1)
        for stage, features in batch.by_stage.items():
            stored[stage][rows] = F.normalize(features, dim=1) if unit_halves else features  # cast on the way
        good[rows] = batch.good
        if world.size == 1:  # no need to wait for the end if too many fail
            failures.add(batch.ids[~batch.good].tolist())
    labels = torch.from_numpy(images.labels)
    everywhere = world.gather(good.byte(), len(images)).bool()
    failures.add((~everywhere).nonzero()[:, 0].tolist())
    if only_mine:
        return Features(stored, good, labels[share], share.start)
    return Features({s: world.gather(values, len(images)) for s, values in stored.items()}, everywhere, labels)


class FeatureBatch(NamedTuple):
    """Features of B consecutive images."""

    ids: Tensor
    """`(B,)`"""
    by_stage: dict[int, Tensor]
    """`(B, C)` per stage, float32, on the CPU; zeros where the image could not be read"""
    good: Tensor
    """`(B,)` bool: the image could be read"""


def feature_batches(
    backbone: ResNet,
    images: Images,
    config: ImagesConfig,
    fabric: Fabric,
    stages: tuple[int, ...] = (4,),
    batch_size: int = 256,
) -> Iterator[FeatureBatch]:
    """The same, one batch at a time: nothing is kept, so that there may be any number of images."""
    return world_of(fabric).in_turn(
        consecutive(images, batch_size), partial(_feature_batches, backbone, images, config, fabric, stages)
    )


@torch.no_grad()
def _feature_batches(
    backbone: ResNet,
    images: Images,
    config: ImagesConfig,
    fabric: Fabric,
    stages: tuple[int, ...],
    batches: Sequence[np.ndarray],
) -> Iterator[FeatureBatch]:
    device = fabric.device
    net = FeatureNet(backbone, stages)
    workers = worker_count(images, config.workers, device.type)
    was_training = backbone.training
    backbone.eval()
    for batch in center_batches(images, config.size, config.eval_crop, batches, workers, pin=device.type == "cuda"):
        with fabric.autocast():
            pooled = net(prepare(batch.crops, device))
        good = batch.good[:, None].to(device, non_blocking=True)
        by_stage = {stage: (features.float() * good).cpu() for stage, features in pooled.items()}
        yield FeatureBatch(batch.ids, by_stage, batch.good)
    backbone.train(was_training)


def prepare(crops: Tensor, device: torch.device) -> Tensor:
    """uint8 `(B, 3, S, S)` → normalised float32 on the device."""
    return normalize(crops.to(device, non_blocking=True).float().div_(255))
