"""Batches of random crops, each image once per epoch, for pre-training, classification and linear probes."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
from lightning_fabric import Fabric

from csml.config import HardwareConfig, ImagesConfig, TrainingConfig
from csml.data.images import Images
from csml.data.loading import CropBatch, view_batches, workers_for_epoch
from csml.data.sampling import BatchPlan, epoch_batches, steps_per_epoch
from csml.distributed.world import world_of
from csml.pixels import CropSpec
from csml.training.schedule import Timetable
from csml.training.task import split_batch_rows

SMALLEST_BATCH = 2
"""BatchNorm needs at least two images."""


class CropConfig(Protocol):
    """The settings that batches of crops depend on."""

    @property
    def batch_size(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def images(self) -> ImagesConfig: ...
    @property
    def hardware(self) -> HardwareConfig: ...


def crop_batches(
    images: Images,
    specs: Sequence[CropSpec],
    plan: Callable[[np.ndarray, int], BatchPlan],
    config: CropConfig,
    fabric: Fabric,
    epoch: int,
    start: int,
    smallest: int = SMALLEST_BATCH,
) -> Iterator[CropBatch]:
    """This process's share of the batches of an epoch, in pieces.

    Args:
        images: the images to crop.
        specs: the crops of each image.
        plan: draws the random numbers of a batch, from its ids `(B,)` and its step.
        config: batch size, seed, workers and pieces.
        fabric: device and processes.
        epoch: number of completed epochs.
        start: first step.
        smallest: minimum number of rows of a piece per process.
    """
    world, device = world_of(fabric), fabric.device.type
    batches = epoch_batches(len(images), config.batch_size, config.seed, epoch)

    def plans() -> Iterator[BatchPlan]:
        for step in range(start, len(batches)):
            whole = plan(batches[step], step)
            yield from (
                whole.only(rows, part)
                for rows, part in split_batch_rows(len(batches[step]), config.hardware, world, smallest)
            )

    workers = workers_for_epoch(images, config.images.workers, config.hardware, device)
    return view_batches(images, plans(), specs, workers, pin=device == "cuda")


def crop_timetable(config: TrainingConfig, images: int) -> Timetable:
    """The timetable of a run over `images` images, from settings in epochs."""
    settings, per_epoch = config.optimizer, steps_per_epoch(images, config.batch_size)
    milestones = tuple(float(epoch * per_epoch) for epoch in settings.milestones)
    return Timetable(
        steps=config.epochs * per_epoch,
        per_epoch=per_epoch,
        warmup=settings.warmup_epochs * per_epoch,
        milestones=milestones if settings.schedule == "steps" else None,
    )
