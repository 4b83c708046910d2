"""Batches of uint8 crops, cut where the pixels are decoded: in worker processes for files, in place for arrays."""

import signal
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from csml.data.images import ArrayImages, BoxMaker, Images, source_of
from csml.data.sampling import BatchPlan
from csml.views.crop import center_boxes, random_boxes
from csml.views.recipe import CropSpec
from csml.world import Part, cores_each, whole


class CropBatch(NamedTuple):
    """Crops of B anchors, less those that could not be read."""

    anchors: Tensor
    """`(B,)` ids"""
    neighbors: Tensor
    """`(P, B)` ids"""
    crops: dict[str, Tensor]
    """uint8 `(B, 3, S, S)` per CropSpec"""
    failed: list[int]
    """ids of files that did not decode"""
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
    """uint8 `(B, 3, S, S)`; black where `good` is False"""
    good: Tensor
    """`(B,)` bool"""


def view_batches(
    images: Images, plans: Iterable[BatchPlan], specs: Sequence[CropSpec], workers: int, pin: bool = False
) -> Iterator[CropBatch]:
    """Carry out the plans in order; they are asked for only a few batches ahead."""
    return iter(loader(_ViewCutter(images, specs), plans, workers, pin))


def consecutive(images: Images, batch_size: int) -> list[np.ndarray]:
    """All ids in their order, so many at a time."""
    ids = np.arange(len(images))
    return [ids[start : start + batch_size] for start in range(0, len(ids), batch_size)]


def center_batches(
    images: Images, size: int, share: float, batches: Sequence[np.ndarray], workers: int, pin: bool = False
) -> Iterator[CenterBatch]:
    """The images of each batch of ids."""
    return iter(loader(_CenterCutter(images, size, share), batches, workers, pin))


def worker_count(images: Images, asked: int | None, accelerator: str) -> int:
    """What was asked for; else none for arrays, one on a CPU that trains, one per spare core beside a GPU."""
    cores = cores_each()
    if asked is not None:
        return asked
    if isinstance(source_of(images), ArrayImages) or cores == 1:
        return 0
    return 1 if accelerator == "cpu" else min(16, cores - 1)


def loader(cutter: Dataset[Any], plans: Iterable[Any], workers: int, pin: bool) -> DataLoader[Any]:
    settings: dict[str, Any] = {"batch_size": None, "num_workers": workers, "pin_memory": pin}
    return DataLoader(cutter, sampler=plans, worker_init_fn=_leave_signals_to_parent, **settings)


def _leave_signals_to_parent(worker: int) -> None:
    """Ctrl-C and a cluster's SIGTERM reach the whole process group; the parent still needs its workers to stop well."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


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
            # An image is decoded once for all of its views.
            crops, good = self._cut(anchors, plan.numbers, [v for v in specs if self.specs[v].image == 0])
            failed = anchors[~good].tolist()
            for image, ids in enumerate(neighbors, start=1):
                of_it = [v for v in specs if self.specs[v].image == image]
                theirs, readable = self._cut(ids, plan.numbers, of_it)
                failed += ids[~readable].tolist()
                lost = np.flatnonzero(~readable & good)
                if len(lost):  # x_p = x_a where the neighbour cannot be read
                    own, _ = self._cut(anchors[lost], plan.numbers[:, lost], of_it)
                    for name, crop in own.items():
                        theirs[name][lost] = crop
                    ids[lost] = anchors[lost]
                crops |= theirs
            crops = {spec.name: crops[spec.name] for spec in self.specs}
        part, rows = plan.part, np.arange(len(anchors))
        if not good.all():
            if len(anchors) == part.total:
                rows, part = rows[good], whole(int(good.sum()))
            else:  # the other processes count on as many rows: repeat a good one, or if there is none keep the black
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
