"""Epochs of steps that may stop anywhere and go on exactly: progress, metrics, checkpoints, signals, broken numbers.

What a batch and a step are, and what happens between epochs, is a subclass: `pretraining.py` and `supervised.py` by way
of `crops.py`, `detection.py`.
"""

import logging
import shlex
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol

import torch
from torch import Tensor, nn

from csml.config.schema import OptimizerConfig, RunConfig
from csml.data.failures import Failures
from csml.data.images import Images
from csml.data.loading import worker_count
from csml.data.sampling import generator_for
from csml.errors import CsmlError
from csml.program import program
from csml.progress import progress_bar
from csml.training.build import Learning, build_optimizer
from csml.training.checkpoint import load_checkpoint, load_newest, newest_checkpoint, save_checkpoint
from csml.training.device import build_fabric, memory_format
from csml.training.interruption import Interrupted, StopSignals
from csml.training.metrics import EpochMeans, MetricsWriter
from csml.training.run_directory import RunDirectory
from csml.training.schedule import Timetable
from csml.world import Part, put_statistics, statistics, world_of

log = logging.getLogger("csml")

_FINITE_CHECK_EVERY = 50
"""Steps between two looks at the loss where looking makes the host wait for the device."""


class Batch(Protocol):
    """What the loop knows of a batch."""

    @property
    def size(self) -> int:
        """number of images"""

    @property
    def failed(self) -> list[int]:
        """ids of files that did not decode"""

    @property
    def part(self) -> Part:
        """which rows of the whole batch these are"""


class TrainingLoop(ABC):
    """One run over `images`. Everything that must survive an interruption is in `state_dict`.

    Args:
        command: of csml, which continues the run.
        config: checked settings.
        images: what is learnt from.
        run: where everything is written.
        timetable: length of the run and of its epochs.
        workers: processes that decode images, as asked for.
        max_failed: share of the images that may be unreadable.
    """

    smallest_batch = 2
    """of which a step can be made: statistics of a single image mean nothing"""
    advice = "try half of --optimizer.lr_per_256, --optimizer.warmup_epochs 1"
    """where numbers became non-finite"""

    def __init__(
        self,
        command: str,
        config: RunConfig,
        images: Images,
        run: RunDirectory,
        timetable: Timetable,
        workers: int | None,
        max_failed: float,
    ) -> None:
        self.command, self.settings, self.images, self.run, self.timetable = command, config, images, run, timetable
        self.resumes = run.root
        """the directory that --resume takes"""
        self.fabric = build_fabric(config.hardware, images, workers)
        self.device = self.fabric.device
        self.world = world_of(self.fabric)
        least = self.smallest_batch * self.world.size
        if config.batch_size < least:
            raise CsmlError(f"batch_size: at least {least} for {self.world.size} processes, not {config.batch_size}")
        self.workers = worker_count(images, workers, self.device.type)
        self.fingerprint = images.fingerprint()
        self.failures = Failures(images, max_failed)
        self.epoch = 0
        """epochs that are complete"""
        self.step = 0
        """steps of the current epoch that are complete"""
        self.means = EpochMeans()
        self.seconds, self.waited = 0.0, 0.0
        """of the current epoch: all of it, and of that waiting for data"""

    def set_up(self, network: nn.Module, parts: Sequence[Learning], optimizer: OptimizerConfig) -> Any:
        """Put the network and an optimizer on the device; returns the network as a step calls it.

        `parts`: parameters with their peak learning rates.
        """
        self.network = network.to(memory_format=memory_format(self.settings.hardware))
        self.wrapped, self.optimizer = self.fabric.setup(self.network, build_optimizer(parts, optimizer))
        return self.wrapped

    # ------------------------------------------------------------------------------- what a subclass is made of

    @abstractmethod
    def batches(self) -> Iterator[Batch]:
        """Those of the current epoch that are left."""

    @abstractmethod
    def train_step(self, batch: Any, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss and metrics of a batch, not yet differentiated."""

    def after_backward(self) -> None:  # noqa: B027
        """Once all gradients of a batch are there, before the optimizer's step."""

    def before_epoch(self) -> None:  # noqa: B027
        """Also called when an epoch is continued in its middle."""

    @abstractmethod
    def close_epoch(self, record: dict[str, Any]) -> str:
        """Add to the record of the epoch that is over; returns the line to be logged."""

    @abstractmethod
    def save_weights(self) -> None:
        """Write what is there to be used, after every epoch."""

    # ------------------------------------------------------------------------------------------------ the run

    def fit(self) -> dict[str, Any]:
        """Train until all epochs are done; returns the last record of metrics."""
        settings, record = self.settings, {}
        board = self.run.tensorboard if settings.monitor.tensorboard else None
        writer = MetricsWriter(self.run.metrics, board, self.epoch) if self.world.first else None
        with StopSignals() as signals:
            while self.epoch < self.timetable.epochs:
                self.before_epoch()
                self.train_epoch(signals)
                self._require_finite_weights()
                self.world.average_statistics(self.network)
                record = self._record()
                self.epoch, self.step = self.epoch + 1, 0
                self.means, self.seconds, self.waited = EpochMeans(), 0.0, 0.0
                line = self.close_epoch(record)
                if writer is not None:
                    self.save_weights()
                    writer.write(record)  # after the weights: who finds the last record finds its weights
                    log.info(line + (f"  {record['failed']} unreadable" if record["failed"] else ""))
                if self.epoch % settings.checkpoint.every_epochs == 0 or self.epoch == self.timetable.epochs:
                    self.save()
                caught = self.world.largest(signals.caught or 0)
                if caught and self.epoch < self.timetable.epochs:
                    self.save()
                    self._stop_if(caught)
        if writer is not None:
            writer.close()
        return record

    def train_epoch(self, signals: StopSignals) -> None:
        """The steps of the current epoch that are left."""
        timetable = self.timetable
        saved = asked = time.monotonic()
        with progress_bar() as bar:
            # The bar counts the steps of the whole run, so that "left" is the time until the run is over.
            name = self.where()
            task = bar.add_task(name, total=timetable.steps, completed=self._steps_done(), note="")
            for batch in self.batches():
                arrived = time.monotonic()
                self.failures.add(batch.failed)
                if batch.part.together // self.world.size >= self.smallest_batch:  # alike in all processes
                    self._step(batch)
                now = time.monotonic()
                self.waited += arrived - asked
                self.seconds += now - asked
                asked = now
                if not batch.part.last:
                    continue
                self.step += 1
                bar.update(task, advance=1, note=f"{self.means.anchors / self.seconds:,.0f} images/s")
                if self.step < timetable.per_epoch:
                    # What one process was told, all are; and clocks differ.
                    wish = self.world.largest(2 * (signals.caught or 0) + self._time_to_save(now - saved))
                    if wish:
                        self.save()
                        saved = time.monotonic()
                    self._stop_if(wish // 2)
                asked = time.monotonic()

    def deal(self, rows: int) -> Iterator[tuple[slice, Part]]:
        """This process's rows of each piece of a batch; one piece, if several would be too small."""
        pieces = self.settings.hardware.accumulate
        enough = rows // (pieces * self.world.size) >= self.smallest_batch
        return self.world.deal(rows, pieces if enough else 1)

    def _step(self, batch: Batch) -> None:
        """Add the gradient of a piece; after the last piece of a batch, step."""
        part = batch.part
        if part.first:
            self.set_schedules(self._steps_done())
        with self.fabric.no_backward_sync(self.wrapped, enabled=not part.last):
            loss, metrics = self.train_step(batch, generator_for(self.settings.seed, self.epoch, self.step, 1))
            self._check_finite(loss, metrics)
            # Gradients are averaged over processes; where their shares are uneven, by rows all the same.
            self.fabric.backward(loss * (batch.size * self.world.size / part.total))
        self.means.add(metrics, batch.size)
        if part.last:
            self.after_backward()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)

    def set_schedules(self, done: int) -> None:
        """Whatever changes over the run, before the step after `done` others."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.timetable.rate(done, group["initial_lr"])

    def where(self) -> str:
        """How far it is, for people."""
        return f"epoch {self.epoch + 1}/{self.timetable.epochs}, step {self.step}"

    def _steps_done(self) -> int:
        return self.epoch * self.timetable.per_epoch + self.step

    def _record(self) -> dict[str, Any]:
        means = self.means.over(self.world)
        self.failures.add(self._failed())
        return {
            "epoch": self.epoch + 1,
            **means.means(),
            "lr": self.optimizer.param_groups[0]["lr"],
            "images_per_second": means.anchors / max(1e-9, self.seconds),
            "data_wait": self.waited / max(1e-9, self.seconds),
            "seconds": self.seconds,
            "failed": len(self.failures.ids),
        }

    def _failed(self) -> list[int]:
        """What any process could not read."""
        return sorted(set().union(*self.world.everyones(self.failures.ids)))

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
            f"{what} became non-finite after {self.where()}; "
            f"the last good checkpoint is {last or 'none'}; "
            f"{self.advice}, or --hardware.precision 32-true"
        )

    # ------------------------------------------------------------------------------------------ interruptions

    def save(self) -> None:
        self._require_finite_weights()
        keep = self.settings.checkpoint.keep
        state = self.state_dict()
        if self.world.first:
            save_checkpoint(self.run.checkpoints, state, self.epoch, self.step, keep=keep)
        self.world.wait()

    def resume(self) -> None:
        """Continue from the newest whole checkpoint of the run directory."""
        found: dict[Path, dict[str, Any]] = {}

        def newest() -> Path:
            newest = load_newest(self.run.checkpoints)
            if newest is None:
                raise CsmlError(f"{self.run.root} has no checkpoint to resume from; start again with --overwrite")
            found[newest[0]] = newest[1]
            return newest[0]

        path = self.world.told_by_first(newest)  # others may see an older state of a network disk
        self.load_state_dict(found[path] if path in found else load_checkpoint(path))
        log.info("resumed from %s", path)

    def state_dict(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch,
            "step": self.step,
            "data": self.fingerprint,
            "method": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "precision": self.fabric.strategy.precision.state_dict(),
            "means": self.means.over(self.world).state_dict(),
            "seconds": self.seconds,
            "waited": self.waited,
            "failed": self._failed(),
            # Of every process: between two epochs they differ.
            "statistics": self.world.everyones(statistics(self.network).cpu()) if self.world.size > 1 else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["data"] != self.fingerprint:
            raise CsmlError(f"data: the images in {self.settings.data} are not those the run was started with")
        self.epoch, self.step = state["epoch"], state["step"]
        self.network.load_state_dict(state["method"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.fabric.strategy.precision.load_state_dict(state["precision"])
        if state.get("statistics") is not None:
            theirs, same = state["statistics"], len(state["statistics"]) == self.world.size
            put_statistics(self.network, theirs[self.world.rank] if same else torch.stack(theirs).mean(0))
        if self.world.first:  # they are of all processes
            self.means.load_state_dict(state["means"], self.device)
        self.seconds, self.waited = state["seconds"], state["waited"]
        self.failures.ids = set(state["failed"])

    def _time_to_save(self, seconds: float) -> bool:
        settings = self.settings.checkpoint
        by_steps = settings.every_steps is not None and self.step % settings.every_steps == 0
        return by_steps or seconds > 60 * settings.every_minutes

    def _stop_if(self, caught: int) -> None:
        """By a signal, after saving."""
        if not caught:
            return
        again = f"{program()} {self.command} --resume {shlex.quote(str(self.resumes))}"
        raise Interrupted(caught, f"stopped in {self.where()}; continue with: {again}")
