"""Training of a detector: iterations over batches of scenes, all layers tuned."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

from csml.config import DetectConfig, OptimizerConfig
from csml.data.failures import Failures
from csml.data.loading import worker_count
from csml.data.scenes import Scenes
from csml.data.scenes.loading import SceneBatch, as_input, scene_batches
from csml.data.scenes.sampling import training_plans
from csml.distributed.world import world_of
from csml.models.detectors import Detector, Truth
from csml.models.sync_batchnorm import synchronised
from csml.runs.directory import RunDirectory
from csml.training.build import build_optimizer
from csml.training.schedule import Timetable
from csml.training.task import LossAndMetrics, deal
from csml.weights import save_detector

_REFERENCE_BATCH = 16


class Detection:
    """The task of `csml detect`; an epoch is `schedule.report_every` iterations.

    Args:
        config: checked settings.
        detector: the network to start from.
        scenes: the annotated images to learn from.
        masks: whether the scenes have masks to learn.
        run: where weights are written.
        fabric: device, precision and processes.
    """

    command = "detect"
    stopped = False
    smallest_batch = 1
    advice = "try half of schedule.lr_per_16, or schedule.warmup 1000"

    def __init__(
        self, config: DetectConfig, detector: Detector, scenes: Scenes, masks: bool, run: RunDirectory, fabric: Fabric
    ) -> None:
        self.config, self.scenes, self.masks, self.run, self.fabric = config, scenes, masks, run, fabric
        self.images, self.fingerprint = scenes.images, scenes.fingerprint()
        self.world, self.device = world_of(fabric), fabric.device
        self.timetable = _timetable(config)
        self.failures = Failures(scenes.images, config.scenes.max_failed, "--scenes.max_failed")
        synchronised(detector, self.world, self.device)
        self.network = detector.train()
        schedule = config.schedule
        lr = schedule.lr_per_16 * config.batch_size / _REFERENCE_BATCH
        settings = OptimizerConfig(momentum=schedule.momentum, weight_decay=schedule.weight_decay)
        self.optimizer = build_optimizer([(detector.parameters(), lr)], settings)

    def batches(self, epoch: int, step: int) -> Iterator[SceneBatch]:
        config, done, device = self.config, epoch * self.timetable.per_epoch, self.device.type
        end = min(done + self.timetable.per_epoch, self.timetable.steps)
        sizes = self.scenes.annotations.sizes
        plans = training_plans(sizes, config.scenes, config.batch_size, config.seed, start=done + step)
        own_rows = (
            plan.only(rows, part)
            for plan in itertools.islice(plans, end - done - step)
            for rows, part in deal(len(plan.ids), config.hardware, self.world, self.smallest_batch)
        )
        workers = worker_count(self.images, config.scenes.workers, device)
        return scene_batches(self.scenes, own_rows, config.scenes.max_side, self.masks, workers, pin=device == "cuda")

    def before_epoch(self, epoch: int) -> None: ...

    def before_step(self, progress: float) -> None: ...

    def train_step(self, network: Any, batch: SceneBatch, generator: torch.Generator) -> LossAndMetrics:
        images, targets = as_input(batch, self.device)
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            # torchvision samples proposals with the global generator.
            torch.manual_seed(generator.initial_seed())
            losses: dict[str, Tensor] = network(images, Truth(targets))
        loss = torch.stack([value.float() for value in losses.values()]).sum()
        named = {name.removeprefix("loss_"): value.detach().float() for name, value in losses.items()}
        return LossAndMetrics(loss, {"loss": loss.detach(), **{f"loss/{name}": v for name, v in named.items()}})

    def after_backward(self, outcomes: list[LossAndMetrics]) -> None: ...

    def end_epoch(self, epoch: int, record: dict[str, Any]) -> str:
        total = self.timetable.steps
        record["iteration"] = done = min(epoch * self.timetable.per_epoch, total)
        terms = [f"{name.removeprefix('loss/')} {record[name]:.3f}" for name in record if name.startswith("loss/")]
        return (
            f"iteration {done:>{len(str(total))},}/{total:,}  loss {record['loss']:.3f}  ({', '.join(terms)})  "
            f"{record['images_per_second']:,.1f} images/s"
        )

    def save_weights(self) -> None:
        save_detector(self.run.detector, self.network, self.config, self.scenes.classes, self.masks)

    def where(self, epoch: int, step: int) -> str:
        return f"iteration {epoch * self.timetable.per_epoch + step}"

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


def _timetable(config: DetectConfig) -> Timetable:
    schedule = config.schedule
    return Timetable(
        steps=schedule.iterations,
        per_epoch=min(schedule.report_every, schedule.iterations),
        warmup=schedule.warmup,
        milestones=tuple(round(share * schedule.iterations) for share in schedule.milestones),
    )
