"""Linear classification on frozen features (METHOD §9): one classifier per stage, trained side by side."""

import logging
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from lightning_fabric import Fabric
from torch import Tensor, nn
from torchvision.models.resnet import ResNet

from csml.config.protocols import LinearConfig
from csml.config.schema import HardwareConfig
from csml.data.cache import cache_key
from csml.data.failures import Failures
from csml.data.images import Images
from csml.data.loading import view_batches, worker_count
from csml.data.sampling import epoch_batches, generator_for, plan_batch
from csml.errors import CsmlError
from csml.evaluation.accuracy import accuracy
from csml.evaluation.features import Features, extract_features, prepare
from csml.models.backbones import FeatureNet, stage_channels, weights_key
from csml.progress import watched
from csml.training.checkpoint import load_checkpoint, newest_checkpoint, save_checkpoint
from csml.training.interruption import Interrupted, StopSignals
from csml.views.recipe import CropSpec
from csml.world import world_of

log = logging.getLogger("csml")

Batch = tuple[dict[int, Tensor], Tensor, int]
"""Features `{stage: (B, C)}` and labels `(B,)` of this process's share, and the rows of all."""


class LinearProbe:
    """Trains and tests the classifiers; the backbone stays in eval mode and gets no gradient.

    Args:
        backbone: frozen here.
        train, val: labelled images.
        config: settings.
        fabric: device and precision.
        checkpoints: folder for what `resume` continues from; removed when the result is there.
    """

    def __init__(
        self, backbone: ResNet, train: Images, val: Images, config: LinearConfig, fabric: Fabric, checkpoints: Path
    ) -> None:
        self.config, self.fabric, self.train, self.checkpoints = config, fabric, train, checkpoints
        self.backbone = backbone.to(fabric.device).requires_grad_(False).eval()
        self.net = FeatureNet(self.backbone, config.stages)
        self.failures = Failures(train, config.images.max_failed)
        self.classes = train.classes
        channels = stage_channels(backbone)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            heads = {str(stage): nn.Linear(channels[stage], len(self.classes)) for stage in config.stages}
        for head in heads.values():
            nn.init.normal_(head.weight, std=0.01, generator=generator_for(config.seed))
            nn.init.zeros_(head.bias)
        self.heads = nn.ModuleDict(heads).to(fabric.device)
        self.optimizer = torch.optim.SGD(
            self.heads.parameters(), config.lr, momentum=config.momentum, weight_decay=config.weight_decay
        )
        self.epoch = 0
        self.world = world_of(fabric)
        self.origin = _origin(backbone, config)
        self.labels = torch.from_numpy(train.labels)
        self.cached = None if config.augment else self._features(train)
        self.test = self._features(val)

    def fit(self) -> dict[str, Any]:
        """Train for all epochs and test; the result as written to linear.json."""
        if self.epoch == 0 and self.world.first:
            shutil.rmtree(self.checkpoints, ignore_errors=True)  # of other weights or settings
        with StopSignals() as signals:
            while self.epoch < self.config.epochs:
                loss = self._train_epoch()
                self.epoch += 1
                if self.world.first:
                    save_checkpoint(self.checkpoints, self.state_dict(), self.epoch, 0, keep=1)
                if self.config.augment or self.epoch % 10 == 0 or self.epoch == self.config.epochs:
                    top1 = self.result()["stages"][str(max(self.config.stages))]["top1"]
                    log.info("epoch %d/%d  loss %.3f  top-1 %.1f %%", self.epoch, self.config.epochs, loss, 100 * top1)
                caught = self.world.largest(signals.caught or 0)
                if caught and self.epoch < self.config.epochs:
                    raise Interrupted(caught, f"stopped after epoch {self.epoch}")
        if self.world.first:
            shutil.rmtree(self.checkpoints, ignore_errors=True)
        return self.result()

    def _train_epoch(self) -> float:
        drops = sum(self.epoch >= milestone for milestone in self.config.milestones)
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.lr * 0.1**drops
        total, seen = torch.zeros((), device=self.fabric.device), 0
        for features, labels, rows in self._cached_batches() if self.cached is not None else self._augmented_batches():
            scores = [self.heads[str(stage)](features[stage]) for stage in self.config.stages]
            losses = torch.stack([F.cross_entropy(each, labels, reduction="sum") / rows for each in scores])
            losses.sum().backward()
            self.world.add_gradients(self.heads)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            total += losses[-1].detach() * rows
            seen += len(labels)
        return float(self.world.sum(total)) / max(1, sum(self.world.everyones(seen)))

    def _cached_batches(self) -> Iterator[Batch]:
        assert self.cached is not None
        good = self.cached.good.nonzero()[:, 0]
        for rows in epoch_batches(len(good), self.config.batch_size, self.config.seed, self.epoch):
            ids = good[torch.from_numpy(rows)][self.world.share(len(rows))]
            features = {stage: values[ids].to(self.fabric.device) for stage, values in self.cached.by_stage.items()}
            yield features, self.labels[ids].to(self.fabric.device), len(rows)

    def _augmented_batches(self) -> Iterator[Batch]:
        config, device = self.config, self.fabric.device
        spec = CropSpec("view", 0, config.images.size, config.crop_scale, (3 / 4, 4 / 3))
        batches = epoch_batches(len(self.train), config.batch_size, config.seed, self.epoch)
        plans = (
            plan_batch(ids, None, 1, generator_for(config.seed, self.epoch, step)).only(rows, part)
            for step, ids in enumerate(batches)
            for rows, part in self.world.deal(len(ids), pieces=1)
        )
        workers = worker_count(self.train, config.images.workers, device.type)
        loader = view_batches(self.train, plans, [spec], workers, pin=device.type == "cuda")
        for step, batch in enumerate(watched(loader, f"epoch {self.epoch + 1}/{config.epochs}", total=len(batches))):
            self.failures.add(batch.failed)
            start, total = batch.part.start, batch.part.total
            if not total:
                continue
            images = prepare(batch.crops["view"], device)  # (B, 3, S, S)
            flip = torch.rand(total, generator=generator_for(config.seed, self.epoch, step, 1)) < 0.5
            flip = flip[start : start + len(images)]
            images = torch.where(flip.to(device)[:, None, None, None], images.flip(3), images)
            with torch.no_grad(), self.fabric.autocast():
                features = self.net(images)
            yield {s: f.float() for s, f in features.items()}, self.labels[batch.anchors].to(device), total

    def _features(self, images: Images) -> Features:
        return extract_features(self.backbone, images, self.config.images, self.fabric, self.config.stages)

    @torch.no_grad()
    def result(self) -> dict[str, Any]:
        """Top-1, top-5 and per-class accuracy on the test images, per stage."""
        labels = self.test.labels[self.test.good]
        stages = {}
        for stage in self.config.stages:
            features = self.test.by_stage[stage][self.test.good].to(self.fabric.device)
            stages[str(stage)] = accuracy(self.heads[str(stage)](features).cpu(), labels, self.classes)
        return {"stages": stages, "tested": len(labels), "trained_on": len(self.train), "failed": self._failed()}

    def _failed(self) -> int:
        cached = 0 if self.cached is None else int((~self.cached.good).sum())
        failed: set[int] = set().union(*self.world.everyones(self.failures.ids))
        return len(failed) + cached + int((~self.test.good).sum())

    def state_dict(self) -> dict[str, Any]:
        return {
            "origin": self.origin,
            "epoch": self.epoch,
            "heads": self.heads.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }

    def can_resume(self) -> bool:
        """Whether there is a checkpoint of these weights and settings."""

        def can() -> bool:
            path = newest_checkpoint(self.checkpoints)
            return path is not None and load_checkpoint(path)["origin"] == self.origin

        return self.world.told_by_first(can)

    def resume(self) -> None:
        """Continue from the newest checkpoint."""
        path = self.world.told_by_first(lambda: newest_checkpoint(self.checkpoints))
        if path is None:
            raise CsmlError(f"resume: there is nothing to continue in {self.checkpoints}; leave --resume out")
        if not self.can_resume():
            raise CsmlError(f"resume: {self.checkpoints} belongs to other weights or settings; leave --resume out")
        state = load_checkpoint(path)
        self.epoch = state["epoch"]
        self.heads.load_state_dict(state["heads"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.world.wait()  # nobody may tidy up before all have read


def _origin(backbone: ResNet, config: LinearConfig) -> str:
    """What a checkpoint belongs to: the weights and all settings but those of the machine."""
    images = replace(config.images, workers=None)
    return cache_key(weights_key(backbone), replace(config, hardware=HardwareConfig(), images=images, output=None))
