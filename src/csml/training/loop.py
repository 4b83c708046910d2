"""Epochs of steps that may stop anywhere and go on exactly: progress, metrics, checkpoints, signals, broken numbers.

What a step is, and what happens between epochs, is a subclass: `pretraining.py`, `supervised.py`.
"""

import logging
import shlex
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torchvision.models.resnet import ResNet

from csml.config.schema import BackboneConfig, TrainingConfig
from csml.data.failures import Failures
from csml.data.images import Images
from csml.data.loading import CropBatch, view_batches, worker_count
from csml.data.sampling import epoch_batches, generator_for, plan_batch, steps_per_epoch
from csml.errors import CsmlError
from csml.program import program
from csml.progress import progress_bar
from csml.training.build import Learning, build_optimizer, peak_learning_rate
from csml.training.checkpoint import load_checkpoint, newest_checkpoint, save_checkpoint
from csml.training.device import build_fabric, memory_format
from csml.training.interruption import Interrupted, StopSignals
from csml.training.metrics import EpochMeans, MetricsWriter
from csml.training.run_directory import RunDirectory
from csml.training.schedule import learning_rate, stepped
from csml.views.recipe import CropSpec
from csml.weights import save_backbone

log = logging.getLogger("csml")

_FINITE_CHECK_EVERY = 50
"""Steps between two looks at the loss where looking makes the host wait for the device."""


class TrainingLoop(ABC):
    """One run over `images`. Everything that must survive an interruption is in `state_dict`.

    Args:
        command: of csml, which continues the run.
        config: checked settings.
        images: what is learnt from.
        run: where everything is written.
    """

    def __init__(self, command: str, config: TrainingConfig, images: Images, run: RunDirectory) -> None:
        self.command, self.settings, self.images, self.run = command, config, images, run
        self.resumes = run.root
        """the directory that --resume takes"""
        self.fabric = build_fabric(config.hardware, images, config.images.workers)
        self.device = self.fabric.device
        self.workers = worker_count(images, config.images.workers, self.device.type)
        self.steps_per_epoch = steps_per_epoch(len(images), config.batch_size)
        self.fingerprint = images.fingerprint()
        self.failures = Failures(images, config.images.max_failed)
        self.epoch = 0
        """epochs that are complete"""
        self.step = 0
        """steps of the current epoch that are complete"""
        self.means = EpochMeans()
        self.seconds, self.waited = 0.0, 0.0
        """of the current epoch: all of it, and of that waiting for data"""

    def set_up(self, network: nn.Module, parts: Sequence[Learning] | None = None) -> Any:
        """Put the network and an optimizer on the device; returns the network as a step calls it.

        `parts`: parameters with their peak learning rates; by default all of the network at that of the settings.
        """
        settings = self.settings
        self.network = network.to(memory_format=memory_format(settings.hardware))
        parts = parts or [(network.parameters(), peak_learning_rate(settings.optimizer, settings.batch_size))]
        wrapped, self.optimizer = self.fabric.setup(self.network, build_optimizer(parts, settings.optimizer))
        return wrapped

    # ------------------------------------------------------------------------------- what a subclass is made of

    @abstractmethod
    def crops(self) -> list[CropSpec]:
        """The crops of every image that a step needs."""

    def omega(self) -> tuple[Any, int]:
        """Ω `(N, k)` or None, and the number of neighbours drawn from it."""
        return None, 1

    @abstractmethod
    def train_step(self, batch: CropBatch, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss and metrics of a batch, not yet differentiated."""

    def after_backward(self) -> None:  # noqa: B027
        """Before the optimizer's step."""

    def before_epoch(self) -> None:  # noqa: B027
        """Also called when an epoch is continued in its middle."""

    @abstractmethod
    def close_epoch(self, record: dict[str, Any]) -> str:
        """Add to the record of the epoch that is over; returns the line to be logged."""

    @abstractmethod
    def backbone(self) -> tuple[ResNet, BackboneConfig]:
        """What is written to backbone.safetensors after every epoch."""

    # ------------------------------------------------------------------------------------------------ the run

    def fit(self) -> dict[str, Any]:
        """Train until all epochs are done; returns the last record of metrics."""
        settings, record = self.settings, {}
        board = self.run.tensorboard if settings.monitor.tensorboard else None
        writer = MetricsWriter(self.run.metrics, board, self.epoch)
        with StopSignals() as signals:
            while self.epoch < settings.epochs:
                self.before_epoch()
                self.train_epoch(signals)
                self._require_finite_weights()
                record = self._record()
                self.epoch, self.step = self.epoch + 1, 0
                self.means, self.seconds, self.waited = EpochMeans(), 0.0, 0.0
                line = self.close_epoch(record)
                save_backbone(self.run.backbone, *self.backbone(), settings.images)
                writer.write(record)  # after the backbone: who finds the last record finds its backbone
                log.info(line + (f"  {record['failed']} unreadable" if record["failed"] else ""))
                if self.epoch % settings.checkpoint.every_epochs == 0 or self.epoch == settings.epochs:
                    self.save()
                self._stop_if_asked(signals)
        writer.close()
        return record

    def train_epoch(self, signals: StopSignals) -> None:
        """The steps of the current epoch that are left."""
        total = self.settings.epochs * self.steps_per_epoch
        saved = asked = time.monotonic()
        with progress_bar() as bar:
            # The bar counts the steps of the whole run, so that "left" is the time until the run is over.
            name = f"epoch {self.epoch + 1}/{self.settings.epochs}"
            task = bar.add_task(name, total=total, completed=self._steps_done(), note="")
            for batch in self._batches():
                arrived = time.monotonic()
                self.failures.add(batch.failed)
                if len(batch.anchors) > 1:
                    self._step(batch)
                self.step += 1
                now = time.monotonic()
                self.waited += arrived - asked
                self.seconds += now - asked
                bar.update(task, advance=1, note=f"{self.means.anchors / self.seconds:,.0f} images/s")
                if self.step < self.steps_per_epoch:
                    if self._time_to_save(now - saved):
                        self.save()
                        saved = time.monotonic()
                    self._stop_if_asked(signals)
                asked = time.monotonic()

    def _batches(self) -> Iterator[CropBatch]:
        settings, specs = self.settings, self.crops()
        batches = epoch_batches(len(self.images), settings.batch_size, settings.seed, self.epoch)
        omega, positives = self.omega()
        plans = (
            plan_batch(batches[step], omega, len(specs), generator_for(settings.seed, self.epoch, step, 0), positives)
            for step in range(self.step, len(batches))
        )
        return view_batches(self.images, plans, specs, self.workers, pin=self.device.type == "cuda")

    def _step(self, batch: CropBatch) -> None:
        self.set_schedules(self._steps_done(), self.settings.epochs * self.steps_per_epoch)
        loss, metrics = self.train_step(batch, generator_for(self.settings.seed, self.epoch, self.step, 1))
        self._check_finite(loss, metrics)
        self.fabric.backward(loss)
        self.after_backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.means.add(metrics, len(batch.anchors))

    def set_schedules(self, done: int, total: int) -> None:
        """Whatever changes over the run, before the step after `done` of `total`."""
        settings = self.settings.optimizer
        warmup = settings.warmup_epochs * self.steps_per_epoch
        milestones = [epoch * self.steps_per_epoch for epoch in settings.milestones]
        for group in self.optimizer.param_groups:
            if settings.schedule == "cosine":
                group["lr"] = learning_rate(done, total, group["initial_lr"], warmup)
            else:
                group["lr"] = stepped(done, milestones, group["initial_lr"], warmup)

    def _steps_done(self) -> int:
        return self.epoch * self.steps_per_epoch + self.step

    def _record(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch + 1,
            **self.means.means(),
            "lr": self.optimizer.param_groups[0]["lr"],
            "images_per_second": self.means.anchors / max(1e-9, self.seconds),
            "data_wait": self.waited / max(1e-9, self.seconds),
            "seconds": self.seconds,
            "failed": len(self.failures.ids),
        }

    # ------------------------------------------------------------------------------------- non-finite numbers

    def _check_finite(self, loss: Tensor, metrics: dict[str, Tensor]) -> None:
        if self.device.type != "cpu" and self.step % _FINITE_CHECK_EVERY:
            return
        if not bool(torch.isfinite(loss)):
            culprits = [name for name, value in metrics.items() if name != "loss" and not bool(torch.isfinite(value))]
            self._stop_as_non_finite(f"the loss ({', '.join(culprits[:1])})" if culprits else "the loss")

    def _require_finite_weights(self) -> None:
        """Before anything is saved: a checkpoint must never replace a good one by NaN."""
        norms = torch.stack(torch._foreach_norm(list(self.network.parameters())))
        if not bool(torch.isfinite(norms).all()):
            self._stop_as_non_finite("a weight")

    def _stop_as_non_finite(self, what: str) -> NoReturn:
        last = newest_checkpoint(self.run.checkpoints)
        raise CsmlError(
            f"{what} became non-finite in epoch {self.epoch + 1}, step {self.step + 1}; "
            f"the last good checkpoint is {last or 'none'}; "
            "try half of --optimizer.lr_per_256, --optimizer.warmup_epochs 1, or --hardware.precision 32-true"
        )

    # ------------------------------------------------------------------------------------------ interruptions

    def save(self) -> None:
        self._require_finite_weights()
        keep = self.settings.checkpoint.keep
        save_checkpoint(self.run.checkpoints, self.state_dict(), self.epoch, self.step, keep=keep)

    def resume(self) -> None:
        """Continue from the newest checkpoint of the run directory."""
        path = newest_checkpoint(self.run.checkpoints)
        if path is None:
            raise CsmlError(f"{self.run.root} has no checkpoint to resume from; start again with --overwrite")
        self.load_state_dict(load_checkpoint(path))
        log.info("resumed from %s", path)

    def state_dict(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch,
            "step": self.step,
            "data": self.fingerprint,
            "method": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "precision": self.fabric.strategy.precision.state_dict(),
            "means": self.means.state_dict(),
            "seconds": self.seconds,
            "waited": self.waited,
            "failed": sorted(self.failures.ids),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["data"] != self.fingerprint:
            raise CsmlError(f"data: the images in {self.settings.data} are not those the run was started with")
        self.epoch, self.step = state["epoch"], state["step"]
        self.network.load_state_dict(state["method"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.fabric.strategy.precision.load_state_dict(state["precision"])
        self.means.load_state_dict(state["means"], self.device)
        self.seconds, self.waited = state["seconds"], state["waited"]
        self.failures.ids = set(state["failed"])

    def _time_to_save(self, seconds: float) -> bool:
        settings = self.settings.checkpoint
        by_steps = settings.every_steps is not None and self.step % settings.every_steps == 0
        return by_steps or seconds > 60 * settings.every_minutes

    def _stop_if_asked(self, signals: StopSignals) -> None:
        if signals.caught is None or self.epoch == self.settings.epochs:
            return
        self.save()
        where = f"epoch {self.epoch + 1}, step {self.step}"
        again = f"{program()} {self.command} --resume {shlex.quote(str(self.resumes))}"
        raise Interrupted(signals.caught, f"stopped in {where}; continue with: {again}")
