"""Pre-training: crops → views → framework → loss, and between epochs the search for Ω and the online 20-NN."""

import time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from csml.config.schema import PretrainConfig
from csml.data.failures import Failures
from csml.data.images import Images, Subset
from csml.data.loading import CropBatch
from csml.data.open import DataSplits
from csml.evaluation.features import Features, extract_features
from csml.evaluation.knn import TEMPERATURE, knn_accuracy
from csml.methods.framework import StepResult
from csml.models.sync_batchnorm import synchronised
from csml.neighbors.bank import OnlineBank
from csml.neighbors.omega import Omega, purity, save_omega, search_omega, thinned, turnover
from csml.training.build import build_method, peak_learning_rate
from csml.training.crops import CropLoop, Drawing
from csml.training.device import memory_format
from csml.training.metrics import embedding_statistics
from csml.training.run_directory import RunDirectory
from csml.views.recipe import CropSpec, crop_specs, make_views
from csml.weights import save_backbone

_ONLINE_K = 20


class Pretraining(CropLoop):
    """One run of `csml pretrain`.

    Args:
        config: checked settings.
        data: the opened data; `data.train` is learnt from, the labelled parts only measure.
        run: where everything is written.
    """

    def __init__(self, config: PretrainConfig, data: DataSplits, run: RunDirectory) -> None:
        super().__init__("pretrain", config, data.train, run)
        self.config, self.data = config, data
        self.method = build_method(config, len(data.train), self.world)
        if config.framework == "byol":  # without negatives BatchNorm leaks nothing, and the whole batch is better
            synchronised(self.method, self.world, self.device)
        if config.hardware.compile:
            for encoder in (self.method.query_encoder, self.method.key_encoder):
                encoder.compile()
        lr = peak_learning_rate(config.optimizer, config.batch_size)
        self.step_method = self.set_up(self.method, [(self.method.parameters(), lr)], config.optimizer)
        self.neighbors: Omega | None = None
        online = config.views.cross_sample and config.neighbors.features == "online"
        self.bank = OnlineBank(len(data.train), config.model.dim, self.device) if online else None
        self.searched: dict[str, Any] = {}
        """what the search before the current epoch, if there was one, found out about Ω"""
        self._failures_of = {id(data.train): self.failures}
        self._kept: tuple[tuple[int, str], Features] | None = None
        self._results: list[StepResult] = []
        """of the pieces of the current batch"""

    # ------------------------------------------------------------------------------------------------- a step

    def crops(self) -> list[CropSpec]:
        return crop_specs(self.config)

    def omega(self) -> Drawing:
        positives, found = self.config.views.positives, self.neighbors
        if found is None:
            return Drawing(None, positives)
        similar = self.config.neighbors.draw == "similar"
        return Drawing(found.indices, positives, found.similarities if similar else None)

    def train_step(self, batch: CropBatch, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        config, device = self.config, self.device
        ids = batch.anchors.numpy()
        omega = self.neighbors.indices[ids] if self.neighbors else np.empty((len(ids), 0), np.int64)  # (B, k)
        views = make_views(
            {name: crop.to(device, non_blocking=True) for name, crop in batch.crops.items()},
            batch.anchors.to(device, non_blocking=True),
            batch.neighbors.to(device, non_blocking=True),
            torch.from_numpy(omega).to(device, non_blocking=True),
            config.views,
            config.augmentation,
            generator,
            memory_format(config.hardware),
            batch.part,
        )
        result: StepResult = self.step_method(views, generator)
        self._results.append(result)
        return result.loss, result.metrics

    def after_backward(self) -> None:
        for result in self._results:
            self.method.after_backward(result)
            if self.bank is not None:
                keys, ids = result.fresh[0]  # the anchors'
                self.bank.add(keys[max(keys)], ids)
        self._results = []

    def set_schedules(self, done: int) -> None:
        super().set_schedules(done)
        self.method.progress = done / self.timetable.steps

    # -------------------------------------------------------------------------------------- borders of epochs

    def before_epoch(self) -> None:
        """Search Ω if it is due."""
        settings = self.config.neighbors
        since = self.epoch - settings.warmup_epochs
        wanted = self.config.views.cross_sample and settings.k > 0
        due = since >= 0 and since % settings.refresh_every == 0
        if not wanted or not due or (self.neighbors is not None and self.neighbors.epoch == self.epoch):
            return
        started = time.monotonic()
        if self.bank is not None:
            share = self.world.share(len(self.images))
            features, good = self.bank.keys[share], self.bank.seen[share].cpu()
        else:
            pooled = self._features(self.data.train, settings.encoder)
            features, good = pooled.by_stage[4].to(self.device), pooled.good
        found = search_omega(features, good, settings.k, self.epoch, settings.recall, self.world)
        found = thinned(found, settings.keep, settings.mutual)
        self.searched = {"omega/purity": purity(found.indices, self.data.train.labels)}
        self.searched["search_seconds"] = time.monotonic() - started
        if self.neighbors is not None:
            self.searched["omega/turnover"] = turnover(self.neighbors.indices, found.indices)
        self.neighbors = found
        if self.world.first:
            save_omega(self.run.neighbors(self.epoch), found)

    def close_epoch(self, record: dict[str, Any]) -> str:
        record |= {"chance": self.method.chance, **self.searched}
        self.searched = {}
        for stage, keys in self.method.recent_keys().items():
            for name, value in embedding_statistics(keys).items():
                record[f"{name}/stage{stage}"] = value
            record[f"alignment/stage{stage}"] = 2 - 2 * record[f"positive/stage{stage}"]  # mean ‖q_a − k_a‖²
        every = self.config.monitor.knn_every
        if every and (self.epoch % every == 0 or self.epoch == self.config.epochs):
            record.update(self._online_knn())
        return _summary(record, self.config.epochs)

    def save_weights(self) -> None:
        backbone = self.method.query_encoder.backbone
        save_backbone(self.run.backbone, backbone, self.config.model, self.config.images)

    def _online_knn(self) -> dict[str, float]:
        labeled, val = self.data.labeled, self.data.val
        if labeled is None or val is None:
            return {}
        train, test = (self._features(images, "query") for images in (labeled, val))
        shares, _, _ = knn_accuracy(train, test, 4, [_ONLINE_K], TEMPERATURE, self.fabric)
        return {"knn20": shares[0]}

    def _features(self, images: Images, encoder: str) -> Features:
        """This process's share, with the weights as they are between two epochs; those of the training set are kept,
        for test and search."""
        if isinstance(images, Subset) and images.images is self.data.train:
            return self._features(self.data.train, encoder).subset(images.ids)
        key = (self.epoch, encoder)
        if images is self.data.train and self._kept is not None and self._kept[0] == key:
            return self._kept[1]
        network = self.method.key_encoder if encoder == "key" else self.method.query_encoder
        # One collection of failures per data set for the whole run, so that a file is named once.
        failures = self._failures_of.setdefault(id(images), Failures(images, self.config.images.max_failed))
        features = extract_features(
            network.backbone,
            images,
            self.config.images,
            self.fabric,
            failures=failures,
            unit_halves=True,
            only_mine=True,
        )
        if images is self.data.train:
            self._kept = (key, features)
        return features

    # ------------------------------------------------------------------------------------------ interruptions

    def state_dict(self) -> dict[str, Any]:
        omega = self.neighbors
        return {
            **super().state_dict(),
            "omega": None if omega is None else torch.from_numpy(omega.indices),
            "similarities": None if omega is None else torch.from_numpy(omega.similarities),
            "omega_epoch": -1 if omega is None else omega.epoch,
            "bank": None if self.bank is None else self.bank.state_dict(),
            "searched": self.searched,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        if state["omega"] is not None:
            self.neighbors = Omega(state["omega"].numpy(), state["similarities"].numpy(), state["omega_epoch"])
        if self.bank is not None:
            self.bank.load_state_dict(state["bank"])
        self.searched = state["searched"]


def _summary(record: dict[str, Any], epochs: int) -> str:
    parts = [
        f"epoch {record['epoch']:>{len(str(epochs))}}/{epochs}",
        f"loss {record['loss/stage4/a']:.3f} (chance {record['chance']:.2f})",
        *([f"accuracy {record['accuracy/stage4']:.1%}"] if "accuracy/stage4" in record else []),
        f"{record['images_per_second']:,.0f} images/s",
    ]
    if record.get("omega/purity") is not None:
        parts.append(f"Ω purity {record['omega/purity']:.1%}")
    if "knn20" in record:
        parts.append(f"20-NN {record['knn20']:.1%}")
    return "  ".join(parts)
