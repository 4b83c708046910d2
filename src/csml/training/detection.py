"""Training of a detector: iterations over batches of scenes, all layers tuned."""

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from csml.config.detection import DetectConfig
from csml.config.schema import OptimizerConfig
from csml.data.scenes import Scenes
from csml.data.scenes.loading import SceneBatch, as_input, scene_batches
from csml.data.scenes.sampling import training_plans
from csml.models.detectors import Detector, Truth
from csml.models.sync_batchnorm import synchronised
from csml.training.loop import TrainingLoop
from csml.training.run_directory import RunDirectory
from csml.training.schedule import Timetable
from csml.weights import save_detector

_REFERENCE_BATCH = 16


class DetectionTraining(TrainingLoop):
    """One run of `csml detect`; an epoch is `schedule.report_every` iterations.

    Args:
        config: checked settings.
        detector: the network to start from.
        scenes: what is learnt from.
        masks: whether it has masks to learn.
        run: where everything is written.
    """

    smallest_batch = 1
    advice = "try half of --schedule.lr_per_16, --schedule.warmup 1000"

    def __init__(
        self, config: DetectConfig, detector: Detector, scenes: Scenes, masks: bool, run: RunDirectory
    ) -> None:
        schedule, reading = config.schedule, config.scenes
        timetable = Timetable(
            steps=schedule.iterations,
            per_epoch=min(schedule.report_every, schedule.iterations),
            warmup=schedule.warmup,
            milestones=tuple(round(share * schedule.iterations) for share in schedule.milestones),
        )
        super().__init__("detect", config, scenes.images, run, timetable, reading.workers, reading.max_failed)
        self.fingerprint = scenes.fingerprint()
        self.failures.option = "--scenes.max_failed"
        self.config, self.scenes, self.masks = config, scenes, masks
        synchronised(detector, self.world, self.device)
        self.detector = detector.train()
        lr = schedule.lr_per_16 * config.batch_size / _REFERENCE_BATCH
        optimizer = OptimizerConfig(momentum=schedule.momentum, weight_decay=schedule.weight_decay)
        self.detect = self.set_up(detector, [(detector.parameters(), lr)], optimizer)

    def batches(self) -> Iterator[SceneBatch]:
        config, done = self.config, self.epoch * self.timetable.per_epoch
        end = min(done + self.timetable.per_epoch, self.timetable.steps)
        sizes = self.scenes.annotations.sizes
        plans = training_plans(sizes, config.scenes, config.batch_size, config.seed, start=done + self.step)
        mine = (
            plan.only(rows, part)
            for plan in itertools.islice(plans, end - done - self.step)
            for rows, part in self.deal(len(plan.ids))
        )
        pin = self.device.type == "cuda"
        return scene_batches(self.scenes, mine, config.scenes.max_side, self.masks, self.workers, pin)

    def train_step(self, batch: SceneBatch, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        images, targets = as_input(batch, self.device)
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(
                generator.initial_seed()
            )  # torchvision draws the proposals it learns from out of the blue
            losses: dict[str, Tensor] = self.detect(images, Truth(targets))
        loss = torch.stack([value.float() for value in losses.values()]).sum()
        named = {name.removeprefix("loss_"): value.detach().float() for name, value in losses.items()}
        return loss, {"loss": loss.detach(), **{f"loss/{name}": value for name, value in named.items()}}

    def close_epoch(self, record: dict[str, Any]) -> str:
        record["iteration"] = done = min(self.epoch * self.timetable.per_epoch, self.timetable.steps)
        parts = [f"{name.removeprefix('loss/')} {record[name]:.3f}" for name in record if name.startswith("loss/")]
        total = self.timetable.steps
        return (
            f"iteration {done:>{len(str(total))},}/{total:,}  loss {record['loss']:.3f}  ({', '.join(parts)})  "
            f"{record['images_per_second']:,.1f} images/s"
        )

    def where(self) -> str:
        return f"iteration {self.epoch * self.timetable.per_epoch + self.step}"

    def save_weights(self) -> None:
        save_detector(
            self.run.root / "detector.safetensors", self.detector, self.config, self.scenes.classes, self.masks
        )
