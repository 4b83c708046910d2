"""Loggers: one interface for the file of the run, TensorBoard, Weights & Biases and MLflow."""

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import csml.runs.loggers as loggers_module
from csml.config import MonitorConfig, RunConfig
from csml.errors import CsmlError
from csml.runs.directory import RunDirectory
from csml.runs.loggers import AllLoggers, TensorBoard, open_loggers
from csml.runs.metrics import JsonLines, read_metrics


def config(**monitor: Any) -> RunConfig:
    return RunConfig(monitor=MonitorConfig(**{"tensorboard": False, **monitor}))


@dataclass
class Recording:
    """A logger that remembers; after some records the service goes away."""

    fails_from: int = 99
    records: list[Mapping[str, Any]] = field(default_factory=list)
    closed: bool = False

    def write(self, record: Mapping[str, Any]) -> None:
        if record["epoch"] >= self.fails_from:
            raise ConnectionError("no route to the service")
        self.records.append(record)

    def close(self) -> None:
        self.closed = True


def test_every_logger_gets_every_record(tmp_path: Path) -> None:
    one, other = Recording(), Recording()
    loggers = AllLoggers(JsonLines(tmp_path / "metrics.jsonl", 0), {"one": one, "other": other})
    for epoch in (1, 2):
        loggers.write({"epoch": epoch, "loss": 0.5})
    loggers.close()
    assert one.records == other.records == read_metrics(tmp_path / "metrics.jsonl")
    assert one.closed and other.closed


def test_a_service_that_goes_away_does_not_end_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    away, well = Recording(fails_from=2), Recording()
    loggers = AllLoggers(JsonLines(tmp_path / "metrics.jsonl", 0), {"away": away, "well": well})
    with caplog.at_level(logging.WARNING, "csml"):
        for epoch in (1, 2, 3):
            loggers.write({"epoch": epoch, "loss": 0.5})
        loggers.close()
    assert len(away.records) == 1 and len(well.records) == len(read_metrics(tmp_path / "metrics.jsonl")) == 3
    assert caplog.text.count("monitor.away: no longer logged there (no route to the service)") == 1


def test_tensorboard_is_written_if_installed_unless_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunDirectory(tmp_path)
    open_loggers(run, 0, config()).close()
    assert not run.tensorboard.exists()
    open_loggers(run, 0, config(tensorboard=None)).close()
    assert run.tensorboard.is_dir()
    monkeypatch.setitem(sys.modules, "tensorboard", None)  # as if it were not installed
    assert not open_loggers(run, 0, config(tensorboard=None)).others
    with pytest.raises(CsmlError, match=r"^monitor\.tensorboard needs the extra \[tensorboard\]"):
        open_loggers(run, 0, config(tensorboard=True))


def test_tensorboard_holds_the_numbers_of_the_records(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logger = TensorBoard(tmp_path, 0)
    for epoch, loss in ((1, 0.5), (2, 0.25)):
        logger.write({"epoch": epoch, "loss": loss, "knn20": None})
    logger.close()
    events = EventAccumulator(str(tmp_path)).Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(1, 0.5), (2, 0.25)]
    assert events.Tags()["scalars"] == ["loss"]


@pytest.mark.parametrize("service", ["wandb", "mlflow"])
def test_a_missing_package_is_one_line(service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, service, None)
    with pytest.raises(CsmlError, match=rf"^monitor\.{service} needs the extra \[{service}\]"):
        open_loggers(RunDirectory(tmp_path), 0, config(**{service: "somewhere"}))


def test_a_service_that_refuses_is_one_line_before_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*arguments: Any) -> None:
        raise ConnectionError("no such project\nlong explanation")

    monkeypatch.setattr(loggers_module, "WeightsAndBiases", refuses)
    with pytest.raises(CsmlError, match=r"^monitor\.wandb: it cannot be used \(no such project\); correct it"):
        open_loggers(RunDirectory(tmp_path), 0, config(wandb="mine"))


def test_mlflow_holds_settings_and_records_and_a_resumed_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    run, store = RunDirectory(tmp_path / "mine"), (tmp_path / "store").as_uri()
    run.root.mkdir()
    for resume_epoch, epochs in ((0, (1, 2)), (2, (3,))):
        logger = open_loggers(run, resume_epoch, config(mlflow=store))
        for epoch in epochs:
            logger.write({"epoch": epoch, "loss/stage4/a": 1 / epoch, "knn20": None})
        assert "mlflow" in logger.others, "a record was refused"
        logger.close()
    client = mlflow.MlflowClient(tracking_uri=store)
    (found,) = client.search_runs([client.get_experiment_by_name("csml").experiment_id])
    assert found.info.run_name == "mine" and found.info.status == "FINISHED"
    assert found.data.params["batch_size"] == "1024" and found.data.params["hardware.devices"] == "1"
    history = client.get_metric_history(found.info.run_id, "loss/stage4/a")
    assert [(one.step, one.value) for one in history] == [(1, 1.0), (2, 0.5), (3, 1 / 3)]
