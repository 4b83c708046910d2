"""The loop: plans → crops → views → loss → step, and at the borders of epochs neighbours, metrics and checkpoints."""

import logging
import math
import shlex
import time
from typing import Any, NoReturn

import numpy as np
import torch

from csml.config.schema import PretrainConfig
from csml.data.failures import Failures
from csml.data.images import Images, Subset
from csml.data.loading import CropBatch, view_batches, worker_count
from csml.data.open import DataSplits
from csml.data.sampling import epoch_batches, generator_for, plan_batch, steps_per_epoch
from csml.errors import CsmlError
from csml.evaluation.features import Features, extract_features
from csml.evaluation.knn import knn_accuracy
from csml.neighbors.bank import OnlineBank
from csml.neighbors.omega import Omega, purity, save_omega, search_omega, turnover
from csml.program import program
from csml.progress import progress_bar
from csml.training.build import build_method, build_optimizer, peak_learning_rate
from csml.training.checkpoint import load_checkpoint, newest_checkpoint, save_checkpoint
from csml.training.device import build_fabric, memory_format
from csml.training.interruption import Interrupted, StopSignals
from csml.training.metrics import EpochMeans, MetricsWriter, embedding_statistics
from csml.training.run_directory import RunDirectory
from csml.training.schedule import learning_rate
from csml.views.recipe import crop_specs, make_views
from csml.weights import save_backbone

log = logging.getLogger("csml")

_ONLINE_K = 20
_FINITE_CHECK_EVERY = 50
"""Steps between two looks at the loss where looking makes the host wait for the device."""


class Pretraining:
    """One run. Everything that must survive an interruption is in `state_dict`.

    Args:
        config: checked settings.
        data: the opened data; `data.train` is learnt from, the labelled parts only measure.
        run: where everything is written.
    """

    def __init__(self, config: PretrainConfig, data: DataSplits, run: RunDirectory) -> None:
        self.config, self.data, self.run = config, data, run
        self.fabric = build_fabric(config.hardware, data.train, config.images.workers)
        self.device = self.fabric.device
        self.method = build_method(config, len(data.train)).to(memory_format=memory_format(config.hardware))
        self.optimizer: torch.optim.Optimizer = build_optimizer(self.method, config)
        if config.hardware.compile:
            for encoder in (self.method.query_encoder, self.method.key_encoder):
                encoder.compile()
        self.step_method, self.optimizer = self.fabric.setup(self.method, self.optimizer)
        self.specs = crop_specs(config)
        self.workers = worker_count(data.train, config.images.workers, self.device.type)
        self.steps_per_epoch = steps_per_epoch(len(data.train), config.batch_size)
        self.fingerprint = data.train.fingerprint()
        self.failures = Failures(data.train, config.images.max_failed)
        self._failures_of = {id(data.train): self.failures}
        self.epoch = 0
        """epochs that are complete"""
        self.step = 0
        """steps of the current epoch that are complete"""
        self.omega: Omega | None = None
        online = config.views.cross_sample and config.neighbors.features == "online"
        self.bank = OnlineBank(len(data.train), config.model.dim, self.device) if online else None
        self.searched: dict[str, Any] = {}
        """what the search before the current epoch, if there was one, found out about Ω"""
        self.means = EpochMeans()
        self.seconds, self.waited = 0.0, 0.0
        """of the current epoch: all of it, and of that waiting for data"""
        self._kept: tuple[tuple[int, str], Features] | None = None

    # ------------------------------------------------------------------------------------------------ the run

    def fit(self) -> dict[str, Any]:
        """Train until all epochs are done; returns the last record of metrics."""
        record: dict[str, Any] = {}
        writer = MetricsWriter(
            self.run.metrics, self.run.tensorboard if self.config.monitor.tensorboard else None, self.epoch
        )
        with StopSignals() as signals:
            while self.epoch < self.config.epochs:
                self._refresh_neighbors()
                self._train_epoch(signals)
                self._require_finite_weights()
                record = self._close_epoch()
                writer.write(record)
                save_backbone(self.run.backbone, self.method.query_encoder.backbone, self.config)
                log.info(_summary(record, self.config.epochs))
                if self.epoch % self.config.checkpoint.every_epochs == 0 or self.epoch == self.config.epochs:
                    self.save()
                self._stop_if_asked(signals)
        writer.close()
        return record

    def _train_epoch(self, signals: StopSignals) -> None:
        config = self.config
        batches = epoch_batches(len(self.data.train), config.batch_size, config.seed, self.epoch)
        omega = self.omega.indices if self.omega is not None else None
        plans = (
            plan_batch(batches[step], omega, len(self.specs), generator_for(config.seed, self.epoch, step, 0))
            for step in range(self.step, len(batches))
        )
        loader = view_batches(self.data.train, plans, self.specs, self.workers, pin=self.device.type == "cuda")
        saved = asked = time.monotonic()
        with progress_bar() as bar:
            # The bar counts the steps of the whole run, so that "left" is the time until the run is over.
            done, total = self.epoch * len(batches) + self.step, config.epochs * len(batches)
            task = bar.add_task(f"epoch {self.epoch + 1}/{config.epochs}", total=total, completed=done, note="")
            for batch in loader:
                arrived = time.monotonic()
                self.failures.add(batch.failed)
                if len(batch.anchors) > 1:
                    self._train_step(batch)
                self.step += 1
                now = time.monotonic()
                self.waited += arrived - asked
                self.seconds += now - asked
                bar.update(task, advance=1, note=f"{self.means.anchors / self.seconds:,.0f} images/s")
                if self.step < len(batches):
                    if self._time_to_save(now - saved):
                        self.save()
                        saved = time.monotonic()
                    self._stop_if_asked(signals)
                asked = time.monotonic()

    def _train_step(self, batch: CropBatch) -> None:
        config, device = self.config, self.device
        generator = generator_for(config.seed, self.epoch, self.step, 1)
        omega = self.omega.indices[batch.anchors.numpy()] if self.omega else np.empty((len(batch.anchors), 0), np.int64)
        views = make_views(
            {name: crop.to(device, non_blocking=True) for name, crop in batch.crops.items()},
            batch.anchors.to(device, non_blocking=True),
            batch.neighbors.to(device, non_blocking=True),
            torch.from_numpy(omega).to(device, non_blocking=True),
            config.views,
            config.augmentation,
            generator,
            memory_format(config.hardware),
        )
        self._set_learning_rate()
        result = self.step_method(views, generator)
        self._check_finite(result.loss, result.metrics)
        self.fabric.backward(result.loss)
        self.method.after_backward(result)
        if self.bank is not None:
            keys, ids = result.entering[0]  # the anchors'
            self.bank.add(keys[max(keys)], ids)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.means.add(result.metrics, len(batch.anchors))

    def _set_learning_rate(self) -> None:
        done = self.epoch * self.steps_per_epoch + self.step
        total = self.config.epochs * self.steps_per_epoch
        warmup = self.config.optimizer.warmup_epochs * self.steps_per_epoch
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(done, total, peak_learning_rate(self.config), warmup)

    def _check_finite(self, loss: torch.Tensor, metrics: dict[str, torch.Tensor]) -> None:
        if self.device.type != "cpu" and self.step % _FINITE_CHECK_EVERY:
            return
        if not bool(torch.isfinite(loss)):
            culprits = [name for name, value in metrics.items() if name != "loss" and not bool(torch.isfinite(value))]
            self._stop_as_non_finite(f"the loss ({', '.join(culprits[:1])})")

    def _require_finite_weights(self) -> None:
        """Before anything is saved: a checkpoint must never replace a good one by NaN."""
        norms = torch.stack(torch._foreach_norm(list(self.method.query_encoder.parameters())))
        if not bool(torch.isfinite(norms).all()):
            self._stop_as_non_finite("a weight")

    def _stop_as_non_finite(self, what: str) -> NoReturn:
        last = newest_checkpoint(self.run.checkpoints)
        raise CsmlError(
            f"{what} became non-finite in epoch {self.epoch + 1}, step {self.step + 1}; "
            f"the last good checkpoint is {last or 'none'}; "
            "try half of --optimizer.lr_per_256, --optimizer.warmup_epochs 1, or --hardware.precision 32-true"
        )

    # -------------------------------------------------------------------------------------- borders of epochs

    def _refresh_neighbors(self) -> None:
        """Search Ω if it is due."""
        settings = self.config.neighbors
        since = self.epoch - settings.warmup_epochs
        wanted = self.config.views.cross_sample and settings.k > 0
        due = since >= 0 and since % settings.refresh_every == 0
        if not wanted or not due or (self.omega is not None and self.omega.epoch == self.epoch):
            return
        if self.bank is not None:
            features, good = self.bank.keys, self.bank.seen.cpu()
        else:
            pooled = self._features(self.data.train, settings.encoder)
            features, good = pooled.by_stage[4].to(self.device), pooled.good
        found = search_omega(features, good, settings.k, self.epoch, settings.recall)
        self.searched = {"omega/purity": purity(found.indices, self.data.train.labels)}
        if self.omega is not None:
            self.searched["omega/turnover"] = turnover(self.omega.indices, found.indices)
        self.omega = found
        save_omega(self.run.neighbors(self.epoch), found)

    def _close_epoch(self) -> dict[str, Any]:
        """Count the epoch as complete and gather its metrics."""
        means = self.means.means()
        record: dict[str, Any] = {
            "epoch": self.epoch + 1,
            "chance": math.log(1 + self.method.queue.length),
            **means,
            "lr": self.optimizer.param_groups[0]["lr"],
            "images_per_second": self.means.anchors / max(1e-9, self.seconds),
            "data_wait": self.waited / max(1e-9, self.seconds),
            "seconds": self.seconds,
            "failed": len(self.failures.ids),
            **self.searched,
        }
        for stage in self.method.stages:
            for name, value in embedding_statistics(self.method.queue.keys(stage)).items():
                record[f"{name}/stage{stage}"] = value
            record[f"alignment/stage{stage}"] = 2 - 2 * means[f"positive/stage{stage}"]  # mean ‖q_a − k_a‖²
        self.epoch, self.step = self.epoch + 1, 0
        self.means, self.searched, self.seconds, self.waited = EpochMeans(), {}, 0.0, 0.0
        every = self.config.monitor.knn_every
        if every and (self.epoch % every == 0 or self.epoch == self.config.epochs):
            record.update(self._online_knn())
        return record

    def _online_knn(self) -> dict[str, float]:
        labeled, val = self.data.labeled, self.data.val
        if labeled is None or val is None:
            return {}
        train, test = (self._features(images, "query") for images in (labeled, val))
        accuracy = knn_accuracy(
            train.by_stage[4][train.good], train.labels[train.good],
            test.by_stage[4][test.good], test.labels[test.good], _ONLINE_K,
        )  # fmt: skip
        return {"knn20": accuracy}

    def _features(self, images: Images, encoder: str) -> Features:
        """With the weights as they are between two epochs. Those of the training set are kept, for test and search."""
        if isinstance(images, Subset) and images.images is self.data.train:
            return self._features(self.data.train, encoder).subset(images.ids)
        key = (self.epoch, encoder)
        if images is self.data.train and self._kept is not None and self._kept[0] == key:
            return self._kept[1]
        network = self.method.key_encoder if encoder == "key" else self.method.query_encoder
        # One collection of failures per data set for the whole run, so that a file is named once.
        failures = self._failures_of.setdefault(id(images), Failures(images, self.config.images.max_failed))
        features = extract_features(
            network.backbone, images, self.config.images, self.fabric, failures=failures, unit_halves=True
        )
        if images is self.data.train:
            self._kept = (key, features)
        return features

    # ------------------------------------------------------------------------------------------ interruptions

    def save(self) -> None:
        self._require_finite_weights()
        save_checkpoint(
            self.run.checkpoints, self.state_dict(), self.epoch, self.step, keep=self.config.checkpoint.keep
        )

    def resume(self) -> None:
        """Continue from the newest checkpoint of the run directory."""
        path = newest_checkpoint(self.run.checkpoints)
        if path is None:
            raise CsmlError(f"{self.run.root} has no checkpoint to resume from; start again with --overwrite")
        self.load_state_dict(load_checkpoint(path))
        log.info("resumed from %s", path)

    def state_dict(self) -> dict[str, Any]:
        omega = self.omega
        return {
            "epoch": self.epoch,
            "step": self.step,
            "data": self.fingerprint,
            "method": self.method.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "precision": self.fabric.strategy.precision.state_dict(),
            "omega": None if omega is None else torch.from_numpy(omega.indices),
            "similarities": None if omega is None else torch.from_numpy(omega.similarities),
            "omega_epoch": -1 if omega is None else omega.epoch,
            "bank": None if self.bank is None else self.bank.state_dict(),
            "searched": self.searched,
            "means": self.means.state_dict(),
            "seconds": self.seconds,
            "waited": self.waited,
            "failed": sorted(self.failures.ids),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["data"] != self.fingerprint:
            raise CsmlError(f"data: the images in {self.config.data} are not those the run was started with")
        self.epoch, self.step = state["epoch"], state["step"]
        self.method.load_state_dict(state["method"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.fabric.strategy.precision.load_state_dict(state["precision"])
        if state["omega"] is not None:
            self.omega = Omega(state["omega"].numpy(), state["similarities"].numpy(), state["omega_epoch"])
        if self.bank is not None:
            self.bank.load_state_dict(state["bank"])
        self.searched = state["searched"]
        self.means.load_state_dict(state["means"], self.device)
        self.seconds, self.waited = state["seconds"], state["waited"]
        self.failures.ids = set(state["failed"])

    def _time_to_save(self, seconds: float) -> bool:
        settings = self.config.checkpoint
        by_steps = settings.every_steps is not None and self.step % settings.every_steps == 0
        return by_steps or seconds > 60 * settings.every_minutes

    def _stop_if_asked(self, signals: StopSignals) -> None:
        if signals.caught is None or self.epoch == self.config.epochs:
            return
        self.save()
        where = f"epoch {self.epoch + 1}, step {self.step}"
        message = f"stopped in {where}; continue with: {program()} pretrain --resume {shlex.quote(str(self.run.root))}"
        raise Interrupted(signals.caught, message)


def _summary(record: dict[str, Any], epochs: int) -> str:
    parts = [
        f"epoch {record['epoch']:>{len(str(epochs))}}/{epochs}",
        f"loss {record['loss/stage4/a']:.3f} (chance {record['chance']:.2f})",
        f"accuracy {record['accuracy/stage4']:.1%}",
        f"{record['images_per_second']:,.0f} images/s",
    ]
    if record.get("omega/purity") is not None:
        parts.append(f"Ω purity {record['omega/purity']:.1%}")
    if "knn20" in record:
        parts.append(f"20-NN {record['knn20']:.1%}")
    if record["failed"]:
        parts.append(f"{record['failed']} unreadable")
    return "  ".join(parts)
