"""Loggers of metrics: always metrics.jsonl; TensorBoard, Weights & Biases and MLflow if configured.

A logger gets one record per epoch: its number under "epoch", and metrics by name, some of them None.
"""

import contextlib
import importlib
import importlib.util
import logging
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from csml.config import MonitorConfig, as_settings, flatten
from csml.errors import CsmlError, reason
from csml.extras import extra
from csml.files import read_json, write_json
from csml.runs.directory import RunDirectory
from csml.runs.metrics import JsonLines

log = logging.getLogger("csml")

_EXPERIMENT = "csml"
_LONGEST_VALUE = 500
"""Largest number of characters of a setting in MLflow."""
_AT_ONCE = 100
"""Largest number of settings per call to MLflow."""


class Logger(Protocol):
    """Writes the records of a run."""

    def write(self, record: Mapping[str, Any]) -> None: ...

    def close(self) -> None: ...


class Monitored(Protocol):
    """Settings of a run."""

    @property
    def monitor(self) -> MonitorConfig: ...


def open_loggers(run: RunDirectory, resume_epoch: int, config: Monitored) -> "AllLoggers":
    """The configured loggers, as one.

    Args:
        run: the run directory.
        resume_epoch: number of completed epochs; records of later epochs are rewritten.
        config: the settings of the run; its section `monitor` selects the loggers; all settings are logged.

    Raises:
        CsmlError: the package of a logger is not installed, or its service refuses.
    """
    monitor, settings = config.monitor, flatten(as_settings(config))
    others: dict[str, Logger] = {}
    if _wants_tensorboard(monitor.tensorboard):
        others["tensorboard"] = TensorBoard(run.tensorboard, resume_epoch)
    if monitor.wandb is not None:
        with _one_line("wandb"):
            others["wandb"] = WeightsAndBiases(run, monitor.wandb, settings)
    if monitor.mlflow is not None:
        with _one_line("mlflow"):
            others["mlflow"] = Mlflow(run, monitor.mlflow, settings)
    return AllLoggers(JsonLines(run.metrics, resume_epoch), others)


@contextlib.contextmanager
def _one_line(name: str) -> Iterator[None]:
    """Turn the failure of a service into a one-line error before training."""
    try:
        yield
    except CsmlError:
        raise
    except Exception as error:
        raise CsmlError(f"monitor.{name}: it cannot be used ({reason(error)}); correct it, or leave it out") from error


class AllLoggers:
    """Writes every record to the run directory, then to the other loggers, whose failures do not end the run."""

    def __init__(self, own: Logger, others: Mapping[str, Logger]) -> None:
        self.own, self.others = own, dict(others)

    def write(self, record: Mapping[str, Any]) -> None:
        self.own.write(record)
        for name, logger in list(self.others.items()):
            try:
                logger.write(record)
            except Exception as error:  # a service may fail in any way
                log.warning("monitor.%s: no longer logged there (%s); metrics.jsonl has all", name, reason(error))
                del self.others[name]

    def close(self) -> None:
        self.own.close()
        for name, logger in self.others.items():
            try:
                logger.close()
            except Exception as error:
                log.warning("monitor.%s: not closed properly (%s)", name, reason(error))


class TensorBoard:
    """Event files in the run directory."""

    def __init__(self, folder: Path, resume_epoch: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # an optional package, slow to import

        self.board: SummaryWriter = SummaryWriter(str(folder), purge_step=resume_epoch + 1)

    def write(self, record: Mapping[str, Any]) -> None:
        for name, value in _metrics(record).items():
            self.board.add_scalar(name, value, record["epoch"])
        self.board.flush()

    def close(self) -> None:
        self.board.close()


class WeightsAndBiases:
    """A run in a project of Weights & Biases; a resumed run continues there."""

    def __init__(self, run: RunDirectory, project: str, settings: Mapping[str, Any]) -> None:
        with extra("wandb", "monitor.wandb"):
            import wandb
        self.run = wandb.init(
            project=project, name=run.root.name, dir=str(run.root), id=_known_id(run, "wandb"), resume="allow",
            config=dict(settings),
        )  # fmt: skip
        _remember_id(run, "wandb", self.run.id)

    def write(self, record: Mapping[str, Any]) -> None:
        self.run.log(_metrics(record), step=record["epoch"])

    def close(self) -> None:
        self.run.finish()


class Mlflow:
    """A run in MLflow's experiment csml; a resumed run continues there."""

    def __init__(self, run: RunDirectory, address: str, settings: Mapping[str, Any]) -> None:
        with extra("mlflow", "monitor.mlflow"):
            from mlflow.entities import Metric, Param
            from mlflow.tracking import MlflowClient
        self.metric, self.client = Metric, MlflowClient(tracking_uri=address)
        known = _known_id(run, "mlflow")
        if known is not None:
            self.id = known
            self.client.update_run(known, status="RUNNING")
            return
        experiment = self.client.get_experiment_by_name(_EXPERIMENT)
        place = experiment.experiment_id if experiment else self.client.create_experiment(_EXPERIMENT)
        self.id = self.client.create_run(place, run_name=run.root.name).info.run_id
        params = [Param(key, str(value)[:_LONGEST_VALUE]) for key, value in settings.items()]
        for start in range(0, len(params), _AT_ONCE):
            self.client.log_batch(self.id, params=params[start : start + _AT_ONCE])
        _remember_id(run, "mlflow", self.id)

    def write(self, record: Mapping[str, Any]) -> None:
        now = int(1000 * time.time())
        metrics = [self.metric(name, float(value), now, record["epoch"]) for name, value in _metrics(record).items()]
        self.client.log_batch(self.id, metrics=metrics)

    def close(self) -> None:
        self.client.set_terminated(self.id)


def _metrics(record: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a record."""
    return {name: value for name, value in record.items() if name != "epoch" and value is not None}


def _known_id(run: RunDirectory, service: str) -> str | None:
    """The id of the run in a service."""
    ids: dict[str, str] = read_json(run.loggers) if run.loggers.exists() else {}
    return ids.get(service)


def _remember_id(run: RunDirectory, service: str, id: str) -> None:
    ids = read_json(run.loggers) if run.loggers.exists() else {}
    write_json(run.loggers, {**ids, service: id})


def _wants_tensorboard(setting: bool | None) -> bool:
    if setting:
        with extra("tensorboard", "monitor.tensorboard"):
            importlib.import_module("tensorboard")
    return importlib.util.find_spec("tensorboard") is not None if setting is None else setting
