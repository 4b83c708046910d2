"""The loop over epochs of random crops, each image once an epoch, which pre-training and classification share."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from csml.config.schema import TrainingConfig
from csml.data.images import Images
from csml.data.loading import CropBatch, view_batches
from csml.data.sampling import BatchPlan, epoch_batches, generator_for, plan_batch, steps_per_epoch
from csml.training.loop import TrainingLoop
from csml.training.run_directory import RunDirectory
from csml.training.schedule import Timetable
from csml.views.recipe import CropSpec


class Drawing(NamedTuple):
    """Arguments of `plan_batch`."""

    omega: np.ndarray | None = None
    positives: int = 1
    similarities: np.ndarray | None = None


class CropLoop(TrainingLoop):
    """A TrainingLoop over crops of `images`."""

    def __init__(self, command: str, config: TrainingConfig, images: Images, run: RunDirectory) -> None:
        timetable = timetable_of(config, len(images))
        super().__init__(command, config, images, run, timetable, config.images.workers, config.images.max_failed)
        self._training = config

    @abstractmethod
    def crops(self) -> list[CropSpec]:
        """The crops of every image that a step needs."""

    def omega(self) -> Drawing:
        """What neighbours are drawn from, and how."""
        return Drawing()

    def batches(self) -> Iterator[CropBatch]:
        config, specs = self._training, self.crops()
        batches = epoch_batches(len(self.images), config.batch_size, config.seed, self.epoch)
        drawing = self.omega()

        def plans() -> Iterator[BatchPlan]:
            for step in range(self.step, len(batches)):
                numbers = generator_for(config.seed, self.epoch, step, 0)
                plan = plan_batch(
                    batches[step], drawing.omega, len(specs), numbers, drawing.positives, drawing.similarities
                )
                yield from (plan.only(rows, part) for rows, part in self.deal(len(batches[step])))

        return view_batches(self.images, plans(), specs, self.workers, pin=self.device.type == "cuda")


def timetable_of(config: TrainingConfig, images: int) -> Timetable:
    """Epochs of the settings as steps."""
    settings, per_epoch = config.optimizer, steps_per_epoch(images, config.batch_size)
    milestones = tuple(float(epoch * per_epoch) for epoch in settings.milestones)
    return Timetable(
        steps=config.epochs * per_epoch,
        per_epoch=per_epoch,
        warmup=settings.warmup_epochs * per_epoch,
        milestones=milestones if settings.schedule == "steps" else None,
    )
