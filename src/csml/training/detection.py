"""Training of a detector: iterations over batches of scenes, all layers tuned."""

import copy
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from csml.config import DetectConfig, OptimizerConfig
from csml.data.failures import Failures
from csml.data.loading import worker_count
from csml.data.scenes import Scenes
from csml.data.scenes.loading import SceneBatch, as_input, scene_batches
from csml.data.scenes.sampling import training_plans
from csml.distributed.world import world_of
from csml.evaluation.detection_test import DetectionTest
from csml.models.detectors import Detector, Truth
from csml.models.sync_batchnorm import synchronised
from csml.runs.directory import RunDirectory
from csml.training.build import build_optimizer
from csml.training.schedule import Timetable
from csml.training.task import LossAndMetrics, split_batch_rows
from csml.weights import save_detector
from csml.weights.reading import read_tensors

_REFERENCE_BATCH = 16


class Detection:
    """The task of `csml detect`; an epoch is `schedule.report_every` iterations.

    With `schedule.test_every` the detector is tested during training, and the best weights are kept; with
    `schedule.ema` the tested and kept weights are a running average.

    Args:
        config: checked settings.
        detector: the network to start from.
        scenes: the annotated images to train on.
        masks: whether to train masks.
        test: the test images.
        run: where weights are written.
        fabric: device, precision and processes.
    """

    command = "detect"
    smallest_batch = 1
    advice = "try half of schedule.lr_per_16, or schedule.warmup 1000"

    def __init__(
        self,
        config: DetectConfig,
        detector: Detector,
        scenes: Scenes,
        masks: bool,
        test: DetectionTest,
        run: RunDirectory,
        fabric: Fabric,
    ) -> None:
        self.config, self.scenes, self.masks, self.run, self.fabric = config, scenes, masks, run, fabric
        self.test = test
        self.best: float | None = None
        """highest AP of the tests so far"""
        self.worse = 0
        """number of tests since then"""
        self.images, self.fingerprint = scenes.images, scenes.fingerprint()
        self.world, self.device = world_of(fabric), fabric.device
        self.timetable = _timetable(config)
        self.failures = Failures(scenes.images, config.scenes.max_failed, "--scenes.max_failed")
        synchronised(detector, self.world, self.device)
        self.network = detector.train()
        self.average = copy.deepcopy(detector).to(self.device).eval() if config.schedule.ema else None
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
            for rows, part in split_batch_rows(len(plan.ids), config.hardware, self.world, self.smallest_batch)
        )
        workers = worker_count(self.images, config.scenes.workers, device)
        return scene_batches(self.scenes, own_rows, config.scenes.max_side, self.masks, workers, pin=device == "cuda")

    def before_epoch(self, epoch: int) -> None: ...

    def before_step(self, progress: float) -> None:
        """Move the average towards the weights after the previous step."""
        if self.average is not None:
            move_towards(self.average, self.network, 1 - float(self.config.schedule.ema or 0))

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
        tested = self._test(record) if self._is_time_to_test(done) else ""
        return (
            f"iteration {done:>{len(str(total))},}/{total:,}  loss {record['loss']:.3f}  ({', '.join(terms)})  "
            f"{record['images_per_second']:,.1f} images/s{tested}"
        )

    @property
    def stopped(self) -> bool:
        """Early stopping: whether the AP has not improved for `schedule.patience` tests."""
        return self.config.schedule.patience is not None and self.worse >= self.config.schedule.patience

    @property
    def kept(self) -> Detector:
        """The weights to use: the average, if there is one."""
        return self.network if self.average is None else self.average

    def load_best_weights(self) -> None:
        """Load the weights of the best test into the network, if there was one."""
        if self.best is not None:
            self.kept.load_state_dict(read_tensors(self.run.best_detector))

    def _is_time_to_test(self, done: int) -> bool:
        every = self.config.schedule.test_every
        if not every:
            return False
        per_epoch = self.timetable.per_epoch
        return done // every > max(0, done - per_epoch) // every or done == self.timetable.steps

    def _test(self, record: dict[str, Any]) -> str:
        """Test the weights and save them if they are the best so far; returns a note for the log."""
        scores = self.test.run(self.kept).scores  # every process gets all detections
        record["AP"], record["AP50"] = (scores["box"][name] or 0.0 for name in ("AP", "AP50"))
        if self.best is None or record["AP"] > self.best:
            self.best, self.worse = record["AP"], 0
            if self.world.is_rank_zero:
                save_detector(self.run.best_detector, self.kept, self.config, self.scenes.classes, self.masks)
            self.world.barrier()
        else:
            self.worse += 1
        return f"  AP {record['AP']:.1f}  AP50 {record['AP50']:.1f}" + ("  (best so far)" if not self.worse else "")

    def save_weights(self) -> None:
        save_detector(self.run.detector, self.kept, self.config, self.scenes.classes, self.masks)

    def where(self, epoch: int, step: int) -> str:
        return f"iteration {epoch * self.timetable.per_epoch + step}"

    def state_dict(self) -> dict[str, Any]:
        average = {} if self.average is None else {"average": self.average.state_dict()}
        return {"best": self.best, "worse": self.worse, **average}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.best, self.worse = state.get("best"), state.get("worse", 0)
        if self.average is not None and "average" in state:
            self.average.load_state_dict(state["average"])


@torch.no_grad()
def move_towards(average: nn.Module, network: nn.Module, share: float) -> None:
    """Move every number of `average` by a share of its distance to that of `network`; counters are copied."""
    means, values = average.state_dict(), network.state_dict()  # once: it walks through all modules
    moved = [name for name, value in values.items() if value.is_floating_point()]
    torch._foreach_lerp_([means[name] for name in moved], [values[name] for name in moved], share)
    for name in values.keys() - set(moved):
        means[name].copy_(values[name])


def _timetable(config: DetectConfig) -> Timetable:
    schedule = config.schedule
    return Timetable(
        steps=schedule.iterations,
        per_epoch=min(schedule.report_every, schedule.iterations),
        warmup=schedule.warmup,
        milestones=tuple(round(share * schedule.iterations) for share in schedule.milestones),
    )
