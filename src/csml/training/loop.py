"""The training loop: epochs of steps that can stop anywhere and resume exactly.

It trains a `Task`, and adds progress, metrics, checkpoints, signals, and a stop at non-finite numbers.
"""

import contextlib
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import torch
from lightning_fabric import Fabric

from csml.data.sampling import generator_for
from csml.distributed.device import memory_format
from csml.distributed.threads import threads_for
from csml.distributed.world import running_statistics, set_running_statistics, world_of
from csml.errors import CsmlError
from csml.progress import Progress
from csml.runs.checkpoint import load_checkpoint, load_newest, newest_checkpoint, save_checkpoint
from csml.runs.directory import RunDirectory
from csml.runs.interruption import Interrupted, StopSignals
from csml.runs.loggers import Logger, open_loggers
from csml.runs.metrics import EpochMeans, read_metrics
from csml.training.task import Batch, LoopConfig, Outcome, Task

log = logging.getLogger("csml")

_FINITE_CHECK_EVERY = 50
"""Steps between two checks of the loss on a GPU, where each check synchronises with the device."""


class TrainingLoop:
    """Trains a task in a run directory. `state_dict` has everything that must survive an interruption.

    Args:
        task: the task to train.
        config: checked settings.
        run: where metrics and checkpoints are written.
        fabric: device, precision and processes.
    """

    def __init__(self, task: Task, config: LoopConfig, run: RunDirectory, fabric: Fabric) -> None:
        self.task, self.config, self.run, self.fabric = task, config, run, fabric
        self.device, self.world = fabric.device, world_of(fabric)
        least = task.smallest_batch * self.world.size
        if config.batch_size < least:
            raise CsmlError(f"batch_size: at least {least} for {self.world.size} processes, not {config.batch_size}")
        network = task.network.to(memory_format=memory_format(config.hardware))
        self.network, self.optimizer = fabric.setup(network, task.optimizer)
        self.threads = threads_for(config.hardware, self.device)
        self.epoch = 0
        """number of completed epochs"""
        self.step = 0
        """number of completed steps of the current epoch"""
        self.means = EpochMeans()
        self.seconds, self.waited = 0.0, 0.0
        """time spent in the current epoch, and the share of it spent waiting for data"""
        self.began, self.done_then = time.monotonic(), 0
        """when this process began to train, and the steps that were done then"""
        self._outcomes: list[Outcome] = []
        """outcomes of the pieces of the current batch"""

    def fit(self) -> dict[str, Any]:
        """Train until all epochs are done; returns the last record of metrics."""
        record: dict[str, Any] = {}
        self.began, self.done_then = time.monotonic(), self._steps_done()
        with StopSignals("this step") as signals, self._logger() as logger, self.threads:
            while not self.is_done():
                self.task.before_epoch(self.epoch)
                self.train_epoch(signals)
                record = self._end_epoch(logger)
                caught = 0 if self.is_done() else self.world.all_reduce_max(signals.caught or 0)
                if caught or self.is_done() or self.epoch % self.config.checkpoint.every_epochs == 0:
                    self.save()
                self._stop_if(caught)
        return record

    def train_epoch(self, signals: StopSignals) -> None:
        """Train the remaining steps of the current epoch; between steps, save checkpoints and stop on signals."""
        saved = requested = time.monotonic()
        # The bar counts the steps of the whole run and the time between epochs, so that "left" is that of the run.
        title = self.where().partition(", step")[0]  # the bar counts the steps itself
        steps, done = self.task.timetable.steps, self._steps_done()
        with Progress(title, steps, done, began=self.began, done_then=self.done_then) as bar:
            for batch in self.task.batches(self.epoch, self.step):
                arrived = time.monotonic()
                self.task.failures.add(batch.failed)
                if batch.part.in_flight // self.world.size >= self.task.smallest_batch:  # the same in all processes
                    self.train_step(batch)
                now = time.monotonic()
                self.waited += arrived - requested
                self.seconds += now - requested
                if batch.part.last:
                    self.step += 1
                    self.threads.adapt()
                    bar.advance(note=f"{self.means.anchors / self.seconds:,.0f} images/s")
                    saved = self._between_steps(signals, saved)
                requested = time.monotonic()

    def train_step(self, batch: Batch) -> None:
        """Add the gradient of one piece of a batch; after the last piece, step the optimizer."""
        part = batch.part
        if part.first:
            self._set_schedules()
        generator = generator_for(self.config.seed, self.epoch, self.step, 1)
        with self.fabric.no_backward_sync(self.network, enabled=not part.last):
            outcome = self.task.train_step(self.network, batch, generator)
            self._check_finite(outcome)
            # Gradients are averaged over processes. Even if shares are uneven, each row has the same weight.
            self.fabric.backward(outcome.loss * (batch.size * self.world.size / part.total))
        self.means.add(outcome.metrics, batch.size)
        self._outcomes.append(outcome)
        if part.last:
            self.task.after_backward(self._outcomes)
            self._outcomes = []
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)

    def is_done(self) -> bool:
        return self.epoch >= self.task.timetable.epochs or self.task.stopped

    def where(self) -> str:
        """The progress of the run in words."""
        return self.task.where(self.epoch, self.step)

    def _set_schedules(self) -> None:
        timetable, done = self.task.timetable, self._steps_done()
        for group in self.optimizer.param_groups:
            group["lr"] = timetable.rate(done, group["initial_lr"])
        self.task.before_step(done / timetable.steps)

    def _steps_done(self) -> int:
        return self.epoch * self.task.timetable.per_epoch + self.step

    def _between_steps(self, signals: StopSignals, saved: float) -> float:
        """Save a checkpoint if one is due, and stop after a signal. Returns the time of the last save."""
        if self.step >= self.task.timetable.per_epoch:  # the end of the epoch comes first
            return saved
        # A signal may reach a single process, and clocks differ, so all processes decide together.
        caught = self.world.all_reduce_max(signals.caught or 0)
        due = self.world.all_reduce_max(int(self._is_time_to_save(time.monotonic() - saved)))
        if caught or due:
            self.save()
            saved = time.monotonic()
        self._stop_if(caught)
        return saved

    def _is_time_to_save(self, seconds: float) -> bool:
        settings = self.config.checkpoint
        by_steps = settings.every_steps is not None and self.step % settings.every_steps == 0
        return by_steps or seconds > 60 * settings.every_minutes

    def _stop_if(self, caught: int) -> None:
        if caught:
            raise Interrupted(caught, self.where(), self.run.resumed, self.task.command)

    # Metrics.

    @contextlib.contextmanager
    def _logger(self) -> Iterator[Logger | None]:
        """None in all processes but the first."""
        if not self.world.is_rank_zero:
            yield None
            return
        with contextlib.closing(open_loggers(self.run, self.epoch, self.config)) as logger:
            yield logger

    def _end_epoch(self, logger: Logger | None) -> dict[str, Any]:
        """Count the epoch as complete, test, write weights and metrics; returns the record."""
        self._require_finite_weights()
        self.world.average_statistics(self.task.network)
        record = self._record()
        self.epoch, self.step = self.epoch + 1, 0
        self.means, self.seconds, self.waited = EpochMeans(), 0.0, 0.0
        line = self.task.end_epoch(self.epoch, record)
        if logger is not None:
            self.task.save_weights()
            logger.write(record)  # after the weights, so that the weights of the last record always exist
            if line:
                log.info(line + (f"  {record['failed']} unreadable" if record["failed"] else ""))
        return record

    def _record(self) -> dict[str, Any]:
        means = self.means.over(self.world)
        self.task.failures.add(self._failed())
        return {
            "epoch": self.epoch + 1,
            **means.means(),
            "lr": self.optimizer.param_groups[0]["lr"],
            "images_per_second": means.anchors / max(1e-9, self.seconds),
            "data_wait": self.waited / max(1e-9, self.seconds),
            "seconds": self.seconds,
            "failed": len(self.task.failures.ids),
        }

    def _failed(self) -> list[int]:
        """The images that any process could not read."""
        return sorted(set().union(*self.world.all_gather_object(self.task.failures.ids)))

    # Non-finite numbers.

    def _check_finite(self, outcome: Outcome) -> None:
        if self.device.type != "cpu" and self.step % _FINITE_CHECK_EVERY:
            return
        if not bool(torch.isfinite(outcome.loss)):
            names = [name for name, value in outcome.metrics.items() if name != "loss" and not torch.isfinite(value)]
            self._stop_as_non_finite(f"the loss ({names[0]})" if names else "the loss")

    def _require_finite_weights(self) -> None:
        """Check the weights before saving: a checkpoint with NaN must never replace a good one."""
        norms = torch.stack(torch._foreach_norm(list(self.task.network.parameters())))
        if not bool(torch.isfinite(norms).all()):
            self._stop_as_non_finite("a weight")

    def _stop_as_non_finite(self, what: str) -> NoReturn:
        last = newest_checkpoint(self.run.checkpoints)
        raise CsmlError(
            f"{what} became non-finite after {self.where()}; the last good checkpoint is {last or 'none'}; "
            f"{self.task.advice}, or hardware.precision 32-true"
        )

    # Checkpoints.

    def save(self) -> None:
        """Write a checkpoint."""
        self._require_finite_weights()
        state = self.state_dict()
        if self.world.is_rank_zero:
            keep = self.config.checkpoint.keep
            save_checkpoint(self.run.checkpoints, state, self.epoch, self.step, keep=keep)
        self.world.barrier()

    def resume(self) -> bool:
        """Continue from the newest checkpoint that is not damaged; returns whether there is one.

        A run that was interrupted before its first checkpoint has lost nothing, so it starts from its beginning.
        """
        found: dict[Path, dict[str, Any]] = {}

        def newest() -> Path | None:
            newest = load_newest(self.run.checkpoints)
            if newest is None:
                if read_metrics(self.run.metrics):  # epochs were completed, and their checkpoints are gone
                    raise CsmlError(f"{self.run.root} has no checkpoint to resume from; start again without resuming")
                return None
            found[newest[0]] = newest[1]
            return newest[0]

        path = self.world.broadcast(newest)  # on a network disk, other processes may see an older state
        if path is None:
            log.info("no checkpoint yet: the run starts from its beginning")
            return False
        self.load_state_dict(found[path] if path in found else load_checkpoint(path))
        self.world.barrier()  # no process may remove checkpoints before all have read them
        log.info("resumed from %s", path)
        return True

    def state_dict(self) -> dict[str, Any]:
        network = self.task.network
        return {
            "epoch": self.epoch,
            "step": self.step,
            "data": self.task.fingerprint,
            "method": network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "precision": self.fabric.strategy.precision.state_dict(),
            "means": self.means.over(self.world).state_dict(),
            "seconds": self.seconds,
            "waited": self.waited,
            "failed": self._failed(),
            # From every process: they differ until the end of the epoch.
            "statistics": self.world.all_gather_object(running_statistics(network).cpu())
            if self.world.size > 1
            else None,
            **self.task.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["data"] != self.task.fingerprint:
            raise CsmlError(f"data: the images in {self.config.data} are not those the run was started with")
        self.task.load_state_dict(state)
        self.epoch, self.step = state["epoch"], state["step"]
        self.task.network.load_state_dict(state["method"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.fabric.strategy.precision.load_state_dict(state["precision"])
        if state.get("statistics") is not None:
            theirs, same = state["statistics"], len(state["statistics"]) == self.world.size
            set_running_statistics(self.task.network, theirs[self.world.rank] if same else torch.stack(theirs).mean(0))
        if self.world.is_rank_zero:  # the restored values are those of all processes
            self.means.load_state_dict(state["means"], self.device)
        self.seconds, self.waited = state["seconds"], state["waited"]
        self.task.failures.ids = set(state["failed"])
