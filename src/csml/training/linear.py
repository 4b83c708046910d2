"""Linear classification on frozen features: one classifier per stage, all trained in parallel.

docs/method.md#evaluation
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from lightning_fabric import Fabric
from torch import Tensor, nn

from csml.config import LinearConfig, as_settings, flatten
from csml.data.failures import Failures
from csml.data.images import Images
from csml.data.loading import CropBatch
from csml.data.sampling import BatchPlan, epoch_batches, generator_for, plan_batch, steps_per_epoch
from csml.distributed.world import Part, world_of
from csml.errors import CsmlError
from csml.evaluation.accuracy import accuracy
from csml.evaluation.features import Features, prepare
from csml.evaluation.stored_features import stored_features
from csml.files import cache_key
from csml.models.backbones import Backbone, FeatureNet, feature_channels, normalization, weights_key
from csml.models.merged_batchnorm import for_use
from csml.pixels import CropSpec
from csml.runs.checkpoint import load_newest, remove_checkpoints
from csml.runs.directory import RunDirectory
from csml.runs.settings import OF_THE_MACHINE
from csml.training.build import seeded
from csml.training.crops import crop_batches
from csml.training.loop import TrainingLoop
from csml.training.schedule import Timetable
from csml.training.task import LossAndMetrics, epoch_and_step, split_batch_rows

_RATIO = (3 / 4, 4 / 3)
_TEST_EVERY = 10
"""Epochs between two tests on cached features, where an epoch takes only a moment."""


class CachedBatch(NamedTuple):
    """Cached features of a piece of a batch."""

    features: dict[int, Tensor]
    """`{stage: (B, C)}`"""
    labels: Tensor
    """`(B,)`"""
    part: Part
    failed: list[int]

    @property
    def size(self) -> int:
        return len(self.labels)


class Heads(nn.ModuleDict):
    """A linear layer per stage: features `{stage: (B, C)}` → scores `{stage: (B, classes)}`."""

    def __init__(self, channels: dict[int, int], stages: tuple[int, ...], classes: int, seed: int) -> None:
        with seeded(seed):
            super().__init__({str(stage): nn.Linear(channels[stage], classes) for stage in stages})
        for head in self.values():
            assert isinstance(head, nn.Linear)
            nn.init.normal_(head.weight, std=0.01, generator=generator_for(seed))
            nn.init.zeros_(head.bias)

    def forward(self, features: dict[int, Tensor]) -> dict[int, Tensor]:
        device = next(iter(features.values())).device
        with torch.autocast(device.type, enabled=False):  # in full precision, because the features are already rounded
            return {stage: self[str(stage)](values.float()) for stage, values in features.items()}


class LinearProbe:
    """The task of `csml linear`. The backbone stays in eval mode and gets no gradient.

    Args:
        config: checked settings.
        backbone: the network to evaluate; frozen here.
        train, val: labelled images to train and to test on.
        run: where metrics and checkpoints are written.
        fabric: device, precision and processes.
    """

    command = "linear"
    stopped = False
    smallest_batch = 1
    advice = "try a lower lr"

    def __init__(
        self, config: LinearConfig, backbone: Backbone, train: Images, val: Images, run: RunDirectory, fabric: Fabric
    ) -> None:
        self.config, self.run, self.fabric = config, run, fabric
        self.images, self.fingerprint = train, train.fingerprint()
        self.world, self.device = world_of(fabric), fabric.device
        self.failures = Failures(train, config.images.max_failed)
        self.backbone = backbone.to(self.device).requires_grad_(False).eval()
        self.seen = FeatureNet(for_use(self.backbone), config.stages)
        self.normalization = normalization(backbone)
        self.origin = _origin(backbone, config)
        self.network = Heads(feature_channels(backbone), config.stages, len(train.classes), config.seed)
        self.optimizer = torch.optim.SGD(
            [{"params": list(self.network.parameters()), "initial_lr": config.lr}],
            config.lr,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
        )
        self.labels = torch.from_numpy(train.labels)
        self.cached = None if config.augment else self._features(train, self.failures)
        self.tests = self._features(val, Failures(val, config.images.max_failed))
        rows = len(train) if self.cached is None else int(self.cached.good.sum())
        per_epoch = steps_per_epoch(rows, config.batch_size)
        milestones = tuple(float(epoch * per_epoch) for epoch in config.milestones)
        self.timetable = Timetable(config.epochs * per_epoch, per_epoch, milestones=milestones)

    def batches(self, epoch: int, step: int) -> Iterator[CropBatch | CachedBatch]:
        if self.cached is not None:
            return self._cached_batches(self.cached, epoch, step)
        config = self.config
        spec = CropSpec("view", 0, config.images.size, config.crop_scale, _RATIO)

        def plan(ids: np.ndarray, step: int) -> BatchPlan:
            return plan_batch(ids, None, 1, generator_for(config.seed, epoch, step))

        return crop_batches(self.images, [spec], plan, config, self.fabric, epoch, step, self.smallest_batch)

    def _cached_batches(self, cached: Features, epoch: int, step: int) -> Iterator[CachedBatch]:
        config, good = self.config, cached.good.nonzero()[:, 0]
        for rows in epoch_batches(len(good), config.batch_size, config.seed, epoch)[step:]:
            for piece, part in split_batch_rows(len(rows), config.hardware, self.world, self.smallest_batch):
                ids = good[torch.from_numpy(rows)][piece]
                features = {stage: values[ids].to(self.device) for stage, values in cached.by_stage.items()}
                yield CachedBatch(features, self.labels[ids].to(self.device), part, [])

    def before_epoch(self, epoch: int) -> None: ...

    def before_step(self, progress: float) -> None: ...

    def train_step(self, network: Any, batch: CropBatch | CachedBatch, generator: torch.Generator) -> LossAndMetrics:
        if isinstance(batch, CachedBatch):
            features, labels = batch.features, batch.labels
        else:
            features, labels = self._cropped_features(batch, generator), self.labels[batch.anchors].to(self.device)
        scores = network(features)
        losses = {s: F.cross_entropy(scores[s], labels, reduction="sum") / len(labels) for s in self.config.stages}
        loss = torch.stack(list(losses.values())).sum()
        return LossAndMetrics(loss, {"loss": loss.detach()} | {f"loss/stage{s}": v.detach() for s, v in losses.items()})

    def _cropped_features(self, batch: CropBatch, generator: torch.Generator) -> dict[int, Tensor]:
        """Features of the batch's crops, flipped at random, `{stage: (B, C)}`."""
        images = prepare(batch.crops["view"], self.device, self.normalization)  # (B, 3, S, S)
        flip = torch.rand(batch.part.total, generator=generator) < 0.5
        flip = flip[batch.part.start : batch.part.start + len(images)]
        images = torch.where(flip.to(self.device)[:, None, None, None], images.flip(3), images)
        with torch.no_grad(), self.fabric.autocast():
            features = self.seen(images)
        return {stage: values.float() for stage, values in features.items()}

    def after_backward(self, outcomes: list[LossAndMetrics]) -> None: ...

    def end_epoch(self, epoch: int, record: dict[str, Any]) -> str:
        config = self.config
        if not config.augment and epoch % _TEST_EVERY and epoch != config.epochs:
            return ""
        tested, last = self.test(), max(config.stages)
        record |= {f"top1/stage{stage}": tested[str(stage)]["top1"] for stage in config.stages}
        loss, top1 = record[f"loss/stage{last}"], tested[str(last)]["top1"]
        return f"epoch {epoch}/{config.epochs}  loss {loss:.3f}  top-1 {top1:.1%}"

    @torch.no_grad()
    def test(self) -> dict[str, Any]:
        """Top-1, top-5 and per-class accuracy on the test images, per stage."""
        good = self.tests.good
        stages = {}
        for stage in self.config.stages:
            scores = self.network[str(stage)](self.tests.by_stage[stage][good].to(self.device))
            stages[str(stage)] = accuracy(scores.cpu(), self.tests.labels[good], self.images.classes)
        return stages

    def result(self) -> dict[str, Any]:
        """The content of linear.json."""
        failed: set[int] = set().union(*self.world.all_gather_object(self.failures.ids))
        bad_tests = int((~self.tests.good).sum())
        return {
            "stages": self.test(),
            "tested": len(self.tests.good) - bad_tests,
            "trained_on": len(self.images) - len(failed),
            "failed": len(failed) + bad_tests,
        }

    def save_weights(self) -> None: ...

    def where(self, epoch: int, step: int) -> str:
        return epoch_and_step(self.timetable, epoch, step)

    def _features(self, images: Images, failures: Failures) -> Features:
        config = self.config
        return stored_features(self.backbone, images, config.images, self.fabric, config.stages, failures=failures)

    def state_dict(self) -> dict[str, Any]:
        return {"origin": self.origin}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state["origin"] != self.origin:
            raise CsmlError(f"resume: {self.run.root} belongs to other weights or settings; start again without it")


def fit_probe(probe: LinearProbe, resume: bool | None = False) -> dict[str, Any]:
    """Train a linear probe to the end and return its result. Its checkpoints remain until the caller has saved the
    result.

    `resume`: continue from the checkpoint; None: only if there is one for these weights and settings.
    """
    loop = TrainingLoop(probe, probe.config, probe.run, probe.fabric)
    world, checkpoints = loop.world, probe.run.checkpoints

    def can_resume() -> bool:
        found = load_newest(checkpoints)
        return found is not None and found[1].get("origin") == probe.origin

    if resume or (resume is None and world.broadcast(can_resume)):
        loop.resume()
    elif world.is_rank_zero:
        remove_checkpoints(checkpoints)  # of other weights or settings
    loop.fit()
    return probe.result()


def _origin(backbone: Backbone, config: LinearConfig) -> str:
    """Identifies the weights and all settings except those of the machine."""
    settings = flatten(as_settings(config))
    return cache_key(
        weights_key(backbone), [item for item in settings.items() if not item[0].startswith(OF_THE_MACHINE)]
    )
