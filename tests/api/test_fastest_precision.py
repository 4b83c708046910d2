"""Precision and layout: what is faster is taken, what was given stays, and a resumed run keeps what it has."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from conftest import SMALL_RUN, csml
from csml.api.fastest_precision import (
    BF16,
    DEFAULT_MODE,
    FLOAT32,
    ComputeMode,
    as_in_run,
    fastest_mode,
    mode_for,
    with_fastest_mode,
    with_hardware,
)
from csml.config import HardwareConfig, PretrainConfig
from csml.files import read_object, write_json
from csml.models.backbones import build_backbone


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Measurements are allowed, and the cache is empty."""
    monkeypatch.setenv("CSML_MEASURE", "1")
    monkeypatch.setenv("CSML_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "measured"


def only_file(folder: Path) -> Path:
    (file,) = folder.iterdir()
    return file


def test_another_way_must_be_clearly_faster() -> None:
    bf16, first = ComputeMode(BF16, True), ComputeMode(FLOAT32, False)
    assert fastest_mode({DEFAULT_MODE: 1.0, bf16: 0.95}) == DEFAULT_MODE
    assert fastest_mode({DEFAULT_MODE: 1.0, bf16: 0.6}) == bf16
    assert fastest_mode({DEFAULT_MODE: 1.0, bf16: 0.6, ComputeMode(BF16, False): 0.57}) == bf16
    assert fastest_mode({DEFAULT_MODE: 1.0, bf16: 1.4, first: 0.7}) == first


def test_a_network_is_measured_once_and_then_remembered(measuring: Path) -> None:
    """A file that says something else is believed: nothing is measured a second time."""
    random, threads = torch.get_rng_state(), torch.get_num_threads()
    mode = mode_for("nano", 32)
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.get_num_threads() == threads
    file = only_file(measuring)
    found = read_object(file)
    assert found["precision"] == mode.precision
    assert all(seconds > 0 for seconds in found["seconds"].values())
    write_json(file, found | {"precision": "16-mixed", "why": "so it was written"})
    assert mode_for("nano", 32) == ComputeMode("16-mixed", mode.channels_last, "so it was written")
    assert mode_for(build_backbone("nano"), 30) == mode_for("nano", 32)
    only_file(measuring)


def test_a_damaged_file_is_measured_again(measuring: Path) -> None:
    mode_for("nano", 32)
    only_file(measuring).write_text("{")
    assert mode_for("nano", 32).precision in (BF16, FLOAT32)
    assert read_object(only_file(measuring))["precision"] in (BF16, FLOAT32)


def test_what_was_given_stays() -> None:
    given = HardwareConfig(accelerator="cpu", precision="16-mixed", channels_last=False)
    assert with_fastest_mode(given, "no such network", 32) == (given, "")
    half_open = HardwareConfig(accelerator="cpu", channels_last=False)
    made, why = with_fastest_mode(half_open, "nano", 32)
    assert (made.channels_last, made.precision == "auto", bool(why)) == (False, False, True)


@pytest.mark.parametrize("kept", [{"precision": "16-mixed", "channels_last": False}, {"precision": "16-mixed"}])
def test_a_resumed_run_computes_as_before(kept: dict[str, Any]) -> None:
    hardware = with_hardware(PretrainConfig(), kept).hardware
    assert (hardware.precision, hardware.channels_last) == ("16-mixed", kept.get("channels_last", True))
    given = HardwareConfig(precision="32-true", channels_last=True)
    assert as_in_run(given, kept) == given


def test_a_run_writes_and_resumes_what_it_computes_with(tmp_path: Path) -> None:
    """run.json decides, not what would be chosen now: the last epoch, trained again, has other bits in bf16."""
    run = tmp_path / "run"
    words = [*SMALL_RUN, "--hardware.accelerator", "cpu", "--epochs", "2", "--neighbors.k", "0", "--out", str(run)]
    assert csml("pretrain", *words).returncode == 0
    facts, losses = read_object(run / "run.json"), {}
    chosen = with_fastest_mode(HardwareConfig(), "nano", 32)[0].precision
    assert (facts["precision"], facts["channels_last"]) == (chosen, True)
    other = FLOAT32 if chosen == BF16 else BF16
    first = loss_of(run)
    for precision in (chosen, other):
        max((run / "checkpoints").iterdir()).unlink()
        write_json(run / "run.json", facts | {"precision": precision})
        done = csml("pretrain", "--resume", str(run))
        assert done.returncode == 0, done.stderr
        losses[precision] = loss_of(run)
    assert losses[chosen] == first
    assert losses[other] != first


def loss_of(run: Path) -> float:
    """Of the last epoch."""
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["epoch"] == 2
    return float(last["loss"])


def test_print_config_says_what_auto_is() -> None:
    done = csml("pretrain", "--preset", "demo", "--hardware.accelerator", "cpu", "--print-config")
    assert yaml.safe_load(done.stdout)["hardware"]["precision"] == "auto"
    said = [line for line in done.stdout.splitlines() if line.startswith("# hardware.")]
    assert [line.split(":")[0] for line in said] == ["# hardware.precision auto", "# hardware.channels_last null"]
    given = ["--hardware.precision", "32-true", "--hardware.channels_last", "true"]
    assert "# hardware" not in csml("pretrain", "--preset", "demo", *given, "--print-config").stdout
