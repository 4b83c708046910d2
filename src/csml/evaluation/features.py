"""Pooled features of every image of a data set, in eval mode and without augmentation (docs/method.md#evaluation)."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from lightning_fabric import Fabric
from torch import Tensor

from csml.config import ImagesConfig
from csml.data.failures import Failures
from csml.data.images import Images, Subset
from csml.data.loading import center_batches, consecutive, worker_count
from csml.distributed.world import world_of
from csml.models.backbones import Backbone, FeatureNet, feature_channels, normalization
from csml.models.merged_batchnorm import for_use
from csml.pixels import Normalization, normalize
from csml.progress import watched

_ROWS = 8192
"""Rows that are checked at a time."""
_PIXELS = 2**19
"""Largest number of pixels of a channel that pass through the network at once on a CPU: 10 images of 224 × 224, or 41
of 112 × 112. Larger pieces leave the cache: in pieces of 83, an image of 224 × 224 took 1.4 times as long."""


class Features(NamedTuple):
    """Features of N consecutive images, in the order of their ids: all images, or one process's share."""

    by_stage: dict[int, Tensor]
    """`(N, C)` for each stage, float32 or L2-normalised float16; zeros if the image could not be read"""
    good: Tensor
    """`(N,)` bool: the image could be read"""
    labels: Tensor
    """`(N,)` int64, −1 if unknown"""
    start: int = 0
    """id of the first image"""

    def subset(self, ids: np.ndarray) -> "Features":
        """The features of the given ids; ids outside of this share are left out."""
        inside = (ids >= self.start) & (ids < self.start + len(self.good))
        rows = torch.from_numpy(ids[inside] - self.start)
        return Features({s: values[rows] for s, values in self.by_stage.items()}, self.good[rows], self.labels[rows])

    def readable(self, stage: int) -> tuple[Tensor, Tensor]:
        """Features `(G, C)` and labels `(G,)` of the images that could be read."""
        return self.by_stage[stage][self.good], self.labels[self.good]


def extract_features(
    backbone: Backbone,
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
    """Compute the features of all images, in eval mode; `backbone` is not changed.

    Args:
        backbone: the network.
        images: the data set; each process computes the features of its share.
        config: size of the centre crop, workers, share of the images that may fail.
        fabric: device and precision.
        stages: the stages to pool.
        batch_size: images per batch.
        description: title of the progress bar.
        failures: collects the ids of images that cannot be read.
        unit_halves: store L2-normalised rows in float16, which is enough for cosine similarity.
        only_mine: return only this process's share instead of gathering all features.
    """
    failures = failures or Failures(images, config.max_failed)
    world = world_of(fabric)
    share = world.share(len(images))
    own = images if world.size == 1 else Subset(images, np.arange(share.start, share.stop))
    good, stored = torch.zeros(len(own), dtype=torch.bool), {}
    channels = feature_channels(backbone)
    for stage in stages:
        kind = torch.float16 if unit_halves else torch.float32
        stored[stage] = torch.zeros(len(own), channels[stage], dtype=kind)
    batches = _feature_batches(backbone, own, config, fabric, stages, consecutive(own, batch_size))
    for batch in watched(batches, description, total=-(-len(own) // batch_size)):
        rows = slice(int(batch.ids[0]), int(batch.ids[-1]) + 1)
        for stage, features in batch.by_stage.items():
            stored[stage][rows] = F.normalize(features, dim=1) if unit_halves else features
        good[rows] = batch.good
        if world.size == 1:  # stop early if too many images fail
            failures.add(batch.ids[~batch.good].tolist())
    labels = torch.from_numpy(images.labels)
    all_good = world.all_gather(good.byte(), len(images)).bool()
    failures.add((~all_good).nonzero()[:, 0].tolist())
    if only_mine:
        return Features(stored, good, labels[share], share.start)
    return Features({s: world.all_gather(values, len(images)) for s, values in stored.items()}, all_good, labels)


class FeatureBatch(NamedTuple):
    """Features of B consecutive images."""

    ids: Tensor
    """`(B,)`"""
    by_stage: dict[int, Tensor]
    """`(B, C)` for each stage, float32, on the CPU; zeros if the image could not be read"""
    good: Tensor
    """`(B,)` bool: the image could be read"""


def feature_batches(
    backbone: Backbone,
    images: Images,
    config: ImagesConfig,
    fabric: Fabric,
    stages: tuple[int, ...] = (4,),
    batch_size: int = 256,
) -> Iterator[FeatureBatch]:
    """Like `extract_features`, but yields one batch at a time and keeps nothing, for any number of images."""
    return world_of(fabric).map_in_order(
        consecutive(images, batch_size), partial(_feature_batches, backbone, images, config, fabric, stages)
    )


@torch.no_grad()
def _feature_batches(
    backbone: Backbone,
    images: Images,
    config: ImagesConfig,
    fabric: Fabric,
    stages: tuple[int, ...],
    batches: Sequence[np.ndarray],
) -> Iterator[FeatureBatch]:
    device = fabric.device
    net, by = FeatureNet(for_use(backbone), stages), normalization(backbone)
    workers = worker_count(images, config.workers, device.type)
    for batch in center_batches(images, config, batches, workers, pin=device.type == "cuda"):
        with fabric.autocast():
            pooled = [net(prepare(piece, device, by)) for piece in pieces(batch.crops, device)]
        good = batch.good[:, None].to(device, non_blocking=True)
        by_stage = {s: (torch.cat([each[s] for each in pooled]).float() * good).cpu() for s in stages}
        yield FeatureBatch(batch.ids, by_stage, batch.good)


def pieces(crops: Tensor, device: torch.device) -> tuple[Tensor, ...]:
    """The crops `(B, C, S, S)` of a batch in pieces for one forward pass each: on a CPU, large images are processed in
    smaller batches, which are as fast and need less memory."""
    return (crops,) if device.type != "cpu" else crops.split(max(1, _PIXELS // crops.shape[-1] ** 2))


def prepare(crops: Tensor, device: torch.device, by: Normalization) -> Tensor:
    """uint8 crops `(B, 3, S, S)` → normalised float32 on the device."""
    return normalize(crops.to(device, non_blocking=True).float().div_(255), by)


def readable_rows(features: Tensor) -> Tensor:
    """Which images could be read, bool `(N,)`: a row of zeros stands for one that could not.

    Checks some rows at a time, because features of a million images are memory-mapped.
    """
    return torch.cat([rows.any(1) for rows in features.split(_ROWS)])
