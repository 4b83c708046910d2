"""Training with labels: the supervised baseline, fine-tuning of a backbone, and training on mined labels."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from lightning_fabric import Fabric

from csml.config import ClassifierConfig
from csml.data.failures import Failures
from csml.data.images import Images
from csml.data.loading import CropBatch
from csml.data.sampling import BatchPlan, generator_for, plan_batch
from csml.distributed.device import memory_format
from csml.distributed.world import world_of
from csml.evaluation.accuracy import accuracy, confusion
from csml.evaluation.features import extract_features
from csml.models.backbones import normalization
from csml.models.classifier import Classifier
from csml.models.sync_batchnorm import synchronised
from csml.pixels import CropSpec
from csml.runs.directory import RunDirectory
from csml.training.build import build_optimizer, peak_learning_rate
from csml.training.crops import SMALLEST_BATCH, crop_batches, crop_timetable
from csml.training.task import LOWER_LEARNING_RATE, LossAndMetrics, epoch_and_step
from csml.views.augment import augment, draw_params
from csml.weights import save_backbone, save_classifier

_CROP_SCALE = (0.08, 1.0)
_TESTS = 10
"""Largest number of tests of a run if monitor.test_every is not set."""


class Classification:
    """The task of `csml supervised`, `csml finetune`, and each round of `csml mine`.

    Args:
        command: the verb that continues the run.
        config: checked settings.
        classifier: the network to start from.
        train: labelled images to train on.
        val: labelled images of the same classes to test on every monitor.test_every epochs; None: no tests.
        run: where weights are written.
        fabric: device, precision and processes.
        head_lr: peak learning rate of the linear layer, if it differs from that of the backbone.
        quiet: do not log a line after each epoch, for a run that is one of many.
    """

    stopped = False
    smallest_batch = SMALLEST_BATCH
    advice = LOWER_LEARNING_RATE

    def __init__(
        self,
        command: str,
        config: ClassifierConfig,
        classifier: Classifier,
        train: Images,
        val: Images | None,
        run: RunDirectory,
        fabric: Fabric,
        head_lr: float | None = None,
        quiet: bool = False,
    ) -> None:
        self.quiet = quiet
        self.command, self.config, self.run, self.fabric = command, config, run, fabric
        self.images, self.val, self.fingerprint = train, val, train.fingerprint()
        self.world, self.device = world_of(fabric), fabric.device
        self.timetable = crop_timetable(config, len(train))
        self.failures = Failures(train, config.images.max_failed)
        self.test_failures = None if val is None else Failures(val, config.images.max_failed)
        """shared by all tests, so that the log names an unreadable file only once"""
        self.normalization = normalization(classifier.backbone)
        synchronised(classifier, self.world, self.device)
        if config.hardware.compile:
            classifier.compile()
        self.network = classifier
        lr = peak_learning_rate(config.optimizer, config.batch_size)
        groups = [(classifier.backbone.parameters(), lr), (classifier.fc.parameters(), head_lr or lr)]
        self.optimizer = build_optimizer(groups, config.optimizer)
        self.labels = torch.from_numpy(train.labels)
        self.best = 0.0
        """highest accuracy (top-1) of all tests so far"""

    def batches(self, epoch: int, step: int) -> Iterator[CropBatch]:
        config, settings = self.config, self.config.augmentation
        spec = CropSpec("view", 0, config.images.size, settings.crop_scale or _CROP_SCALE, settings.crop_ratio)

        def plan(ids: np.ndarray, step: int) -> BatchPlan:
            return plan_batch(ids, None, 1, generator_for(config.seed, epoch, step, 0))

        return crop_batches(self.images, [spec], plan, config, self.fabric, epoch, step)

    def before_epoch(self, epoch: int) -> None: ...

    def before_step(self, progress: float) -> None: ...

    def train_step(self, network: Any, batch: CropBatch, generator: torch.Generator) -> LossAndMetrics:
        settings, crops = self.config.augmentation, batch.crops["view"].to(self.device, non_blocking=True)
        params = draw_params(len(crops), settings, generator, batch.part)
        images = augment(crops, params, settings.blur_sigma[1], self.normalization)
        labels = self.labels[batch.anchors].to(self.device, non_blocking=True)  # (B,)
        scores = network(images.contiguous(memory_format=memory_format(self.config.hardware)))  # (B, classes)
        loss = F.cross_entropy(scores.float(), labels)
        right = (scores.argmax(1) == labels).float().mean()
        return LossAndMetrics(loss, {"loss": loss.detach(), "accuracy": right})

    def after_backward(self, outcomes: list[LossAndMetrics]) -> None: ...

    def end_epoch(self, epoch: int, record: dict[str, Any]) -> str:
        epochs = self.config.epochs
        line = (
            f"epoch {epoch:>{len(str(epochs))}}/{epochs}  loss {record['loss']:.3f}  "
            f"accuracy {record['accuracy']:.1%}  {record['images_per_second']:,.0f} images/s"
        )
        if self.val is not None and tests_after(epoch, epochs, self.config.monitor.test_every):
            tested = self.test()
            record |= {"top1": tested["top1"], "top5": tested["top5"]}
            line += f"  test top-1 {tested['top1']:.1%}"
            if tested["top1"] > self.best:
                self.best = tested["top1"]
                if self.world.is_rank_zero:
                    self._save_classifier(best=True)
        return "" if self.quiet else line

    def save_weights(self) -> None:
        save_backbone(self.run.backbone, self.network.backbone, self.config.model, self.config.images)
        self._save_classifier(best=False)

    def _save_classifier(self, best: bool) -> None:
        path = self.run.best_classifier if best else self.run.classifier
        save_classifier(path, self.network, self.config.model, self.config.images, self.images.classes)

    @torch.no_grad()
    def test(self) -> dict[str, Any]:
        """Accuracy and confusion matrix on centre crops of the test images."""
        assert self.val is not None
        features = extract_features(
            self.network.backbone, self.val, self.config.images, self.fabric, failures=self.test_failures
        )
        scores = self.network.scores(features.by_stage[4][features.good].to(self.device)).cpu()  # (Q, classes)
        labels, classes = features.labels[features.good], self.images.classes
        return {**accuracy(scores, labels, classes), "confusion": confusion(scores, labels, len(classes))}

    def where(self, epoch: int, step: int) -> str:
        return epoch_and_step(self.timetable, epoch, step)

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.best = state["best"]


def tests_after(epoch: int, epochs: int, every: int | None) -> bool:
    """Whether to test after `epoch`: every `every` epochs, by default about ten times in total, and after the last."""
    every = -(-epochs // _TESTS) if every is None else every
    return epoch == epochs or (every > 0 and epoch % every == 0)
