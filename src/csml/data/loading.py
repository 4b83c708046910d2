"""Batches of uint8 crops, cut where the images are decoded: in worker processes for files, in this one for arrays."""

import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from csml.config import HardwareConfig, ImagesConfig
from csml.data.concat import ConcatImages
from csml.data.images import ArrayImages, BoxMaker, FolderImages, Images, source_ids, source_of
from csml.data.sampling import BatchPlan
from csml.distributed.device import accelerator_of, build_fabric, use_cores
from csml.distributed.world import Part, cores_each, whole
from csml.pixels import CropSpec, center_boxes, random_boxes


class CropBatch(NamedTuple):
    """Crops of B anchors, without those that could not be read."""

    anchors: Tensor
    """`(B,)` ids"""
    neighbors: Tensor
    """`(P, B)` ids"""
    crops: dict[str, Tensor]
    """uint8 `(B, 3, S, S)` for each CropSpec"""
    failed: list[int]
    """ids of images that could not be read"""
    part: Part
    """which rows of the whole batch these are"""

    @property
    def size(self) -> int:
        return len(self.anchors)


class CenterBatch(NamedTuple):
    """Deterministic centre crops of B consecutive images."""

    ids: Tensor
    """`(B,)`"""
    crops: Tensor
    """uint8 `(B, 3, S, S)`; black if `good` is False"""
    good: Tensor
    """`(B,)` bool: the image could be read"""


def view_batches(
    images: Images, plans: Iterable[BatchPlan], specs: Sequence[CropSpec], workers: int, pin: bool = False
) -> Iterator[CropBatch]:
    """Yield the batch of each plan, in order. Plans are requested only a few batches ahead."""
    return iter(loader(_ViewCutter(images, specs), plans, workers, pin))


def consecutive(images: Images, batch_size: int) -> list[np.ndarray]:
    """All ids in order, split into batches."""
    ids = np.arange(len(images))
    return [ids[start : start + batch_size] for start in range(0, len(ids), batch_size)]


def center_batches(
    images: Images, config: ImagesConfig, batches: Sequence[np.ndarray], workers: int, pin: bool = False
) -> Iterator[CenterBatch]:
    """Yield the centre crops `(B, C, S, S)` of each batch of ids."""
    return iter(loader(_CenterCutter(images, config.center_size, config.eval_crop), batches, workers, pin))


def worker_count(images: Images, workers: int | None, accelerator: str) -> int:
    """Number of decoding workers: `workers`, else 0 for arrays, 1 if the CPU trains, one per spare core with a GPU.

    If the CPU trains and all images are cached, no worker is needed.
    """
    cores = cores_each()
    if workers is not None:
        return workers
    if isinstance(source_of(images), ArrayImages) or cores == 1 or (accelerator == "cpu" and all_decoded(images)):
        return 0
    return 1 if accelerator == "cpu" else min(16, cores - 1)


def all_decoded(images: Images) -> bool:
    """Whether the cache has every image of one or several folders."""
    source = source_of(images)
    if isinstance(source, ConcatImages):
        return all(all_decoded(member) for member in source.members)
    if not isinstance(source, FolderImages) or source.decoded is None:
        return False
    return source.decoded.missing(source.path(id) for id in source_ids(images).tolist()) == 0


def fabric_for(images: Images, workers: int | None, hardware: HardwareConfig) -> Fabric:
    """The fabric to run on, with a core left free for each worker that decodes `images`."""
    return build_fabric(hardware, worker_count(images, workers, accelerator_of(hardware)))


def workers_for_epoch(images: Images, workers: int | None, hardware: HardwareConfig, accelerator: str) -> int:
    """Number of workers for the next epoch. After the first epoch all images may be cached: then all cores train."""
    workers = worker_count(images, workers, accelerator)
    if not isinstance(source_of(images), ArrayImages):
        use_cores(hardware, accelerator, workers)
    return workers


def loader(cutter: Dataset[Any], plans: Iterable[Any], workers: int, pin: bool) -> DataLoader[Any]:
    """A DataLoader that yields `cutter[plan]` for each plan, in order."""
    settings: dict[str, Any] = {"batch_size": None, "num_workers": workers, "pin_memory": pin}
    return DataLoader(cutter, sampler=plans, worker_init_fn=_follow_parent, **settings)


def _follow_parent(worker: int) -> None:
    """Ignore Ctrl-C and SIGTERM, which reach the whole process group: the parent needs its workers to stop cleanly. Do
    not report that the parent was killed while it took a batch from this worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.excepthook = _report_unless_parent_died


def _report_unless_parent_died(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """For the thread that hands over batches: it reports an error in this way, but goes on."""
    if not isinstance(error, ConnectionError | EOFError):
        sys.__excepthook__(kind, error, trace)


def _random_cut(numbers: Tensor, spec: CropSpec) -> tuple[BoxMaker, int]:
    def boxes(rows: slice, sizes: Tensor) -> Tensor:
        return random_boxes(numbers[rows], sizes, spec.scale, spec.ratio)

    return boxes, spec.size


class _ViewCutter(Dataset[CropBatch]):
    def __init__(self, images: Images, specs: Sequence[CropSpec]) -> None:
        self.images = images
        self.specs = list(specs)

    def __getitem__(self, plan: BatchPlan) -> CropBatch:
        anchors, neighbors = plan.anchors, plan.neighbors.copy()  # (B,), (P, B)
        specs = range(len(self.specs))
        if (neighbors == anchors).all():
            crops, good = self._cut(anchors, plan.numbers, specs)
            failed = anchors[~good].tolist()
        else:
            # Each image is decoded once for all its views.
            crops, good = self._cut(anchors, plan.numbers, [v for v in specs if self.specs[v].image == 0])
            failed = anchors[~good].tolist()
            for image, ids in enumerate(neighbors, start=1):
                views = [v for v in specs if self.specs[v].image == image]
                if not views:  # neighbours without a view are not decoded
                    continue
                neighbor_crops, readable = self._cut(ids, plan.numbers, views)
                failed += ids[~readable].tolist()
                lost = np.flatnonzero(~readable & good)
                if len(lost):  # x_p = x_a if the neighbour cannot be read
                    anchor_crops, _ = self._cut(anchors[lost], plan.numbers[:, lost], views)
                    for name, crop in anchor_crops.items():
                        neighbor_crops[name][lost] = crop
                    ids[lost] = anchors[lost]
                crops |= neighbor_crops
            crops = {spec.name: crops[spec.name] for spec in self.specs}
        part, rows = plan.part, np.arange(len(anchors))
        if not good.all():
            if len(anchors) == part.total:
                rows, part = rows[good], whole(int(good.sum()))
            else:  # other processes rely on the number of rows: repeat a good one, or keep black ones if there is none
                rows = np.where(good, rows, np.argmax(good) if good.any() else rows)
            crops = {name: crop[torch.from_numpy(rows)] for name, crop in crops.items()}
        return CropBatch(torch.from_numpy(anchors[rows]), torch.from_numpy(neighbors[:, rows]), crops, failed, part)

    def _cut(self, ids: np.ndarray, numbers: Tensor, views: Sequence[int]) -> tuple[dict[str, Tensor], np.ndarray]:
        crops, good = self.images.cut(ids, [_random_cut(numbers[v], self.specs[v]) for v in views])
        return {self.specs[v].name: crop for v, crop in zip(views, crops, strict=True)}, good


class _CenterCutter(Dataset[CenterBatch]):
    def __init__(self, images: Images, size: int, share: float) -> None:
        self.images = images
        self.cut = (partial(_center_cut, share), size)

    def __getitem__(self, ids: np.ndarray) -> CenterBatch:
        (crops,), good = self.images.cut(ids, [self.cut])
        return CenterBatch(torch.from_numpy(ids), crops, torch.from_numpy(good))


def _center_cut(share: float, rows: slice, sizes: Tensor) -> Tensor:
    return center_boxes(sizes, share)
