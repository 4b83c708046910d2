"""Pre-training of timm's networks, and from weights: where it starts, what it keeps, and that it resumes exactly."""

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file

import csml
from conftest import TIMES, assert_same, noise_photos
from csml.config import BackboneConfig, ImagesConfig
from csml.models import build_backbone
from csml.runs.checkpoint import load_checkpoint, newest_checkpoint
from csml.runs.directory import RunDirectory
from csml.runs.metrics import read_metrics
from csml.weights import load_backbone, save_backbone
from csml.weights.named import PACKAGES, package_file

SMALL: dict[str, Any] = {
    "epochs": 2, "batch_size": 16, "images.synthetic_train": 32, "images.synthetic_val": 16, "monitor.knn_every": 0,
    "neighbors.warmup_epochs": 1, "neighbors.refresh_every": 1, "neighbors.k": 2, "neighbors.keep": 1,
    "monitor.tensorboard": False, "hardware.threads": 1, "hardware.precision": "32-true",
}  # fmt: skip
QUEUE = {"contrast.queue_length": 16}
STILL = {"optimizer.lr_per_256": 1e-12, "optimizer.weight_decay": 0.0, "epochs": 1, "neighbors.warmup_epochs": 0}
"""A run that goes nowhere ends where it started."""


def state(run: Path) -> dict[str, Any]:
    path = newest_checkpoint(run / "checkpoints")
    assert path is not None
    return load_checkpoint(path)


def resumed_from_the_first_epoch(run: Path, out: Path) -> Path:
    """A copy of the run as it was before its last epoch, continued."""
    shutil.copytree(run, out)
    last = newest_checkpoint(out / "checkpoints")
    assert last is not None
    for file in (out / "checkpoints").glob(f"{last.name}*"):
        file.unlink()
    (out / "backbone.safetensors").unlink()
    csml.pretrain(resume=out)
    return out


def assert_equal_runs(one: Path, two: Path) -> None:
    ours, theirs = state(one), state(two)
    assert_same({k: ours[k] for k in ("method", "optimizer")}, {k: theirs[k] for k in ("method", "optimizer")})
    assert_same(load_file(one / "backbone.safetensors"), load_file(two / "backbone.safetensors"))
    records = [read_metrics(run / "metrics.jsonl")[-1] for run in (one, two)]
    assert {k: v for k, v in records[0].items() if k not in TIMES} == {
        k: v for k, v in records[1].items() if k not in TIMES
    }


@pytest.mark.parametrize(
    ("preset", "backbone", "more"),
    [("demo", "timm:test_efficientnet", QUEUE), ("demo-csml-byol", "timm:test_convnext", {})],
)
def test_a_run_of_a_timm_network_resumes_to_the_bit(
    preset: str, backbone: str, more: dict[str, Any], tmp_path: Path
) -> None:
    whole = csml.pretrain(
        "synthetic", tmp_path / "whole", preset=preset, model={"backbone": backbone, "hidden": 16}, **SMALL, **more
    ).path
    assert_equal_runs(whole, resumed_from_the_first_epoch(whole, tmp_path / "resumed"))


def network_file(folder: Path, name: str = "test_efficientnet") -> Path:
    """Weights as csml saves them, of a network of timm with statistics of its own."""
    net = build_backbone(f"timm:{name}")
    net(torch.rand(4, 3, 64, 64))
    save_backbone(folder / "mine.safetensors", net, BackboneConfig(f"timm:{name}"), ImagesConfig(size=32))
    return folder / "mine.safetensors"


def from_weights(weights: Any, out: Path, **more: Any) -> Path:
    return csml.pretrain("synthetic", out, preset="demo", weights=weights, **{**SMALL, **QUEUE, **more}).path


def assert_starts_at(run: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Exactly at these weights, by the copy that the run keeps and by what a run that goes nowhere ends with."""
    assert_same(load_file(RunDirectory(run).start), tensors)
    ended = load_file(run / "backbone.safetensors")
    for key, value in tensors.items():
        torch.testing.assert_close(ended[key], value, atol=1e-6, rtol=1e-6)


def test_a_run_starts_from_a_file_and_resumes_when_the_file_is_gone(tmp_path: Path) -> None:
    file = network_file(tmp_path)
    tensors = load_file(file)
    run = from_weights(file, tmp_path / "still", **STILL)
    assert_starts_at(run, tensors)
    assert csml.Run(run).config.model.backbone == "timm:test_efficientnet"
    whole = from_weights(file, tmp_path / "whole")
    file.unlink()
    assert_equal_runs(whole, resumed_from_the_first_epoch(whole, tmp_path / "resumed"))


def test_a_run_from_weights_names_an_unreadable_image_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Training, the search for neighbours and the comparison with the start all come across it, epoch by epoch."""
    noise_photos(tmp_path / "photos", 40)
    (tmp_path / "photos" / "07.png").write_bytes(b"broken")
    save_backbone(tmp_path / "net.safetensors", build_backbone("nano"), BackboneConfig("nano"), ImagesConfig(size=32))
    settings = {**SMALL, "images.size": 32, "images.workers": 0, "images.max_failed": 0.1, **QUEUE}
    with caplog.at_level(logging.INFO, logger="csml"):
        csml.pretrain(
            tmp_path / "photos", tmp_path / "run", preset="demo", weights=tmp_path / "net.safetensors", **settings
        )
    assert sum("skipped, cannot be read: 07.png" in message for message in caplog.messages) == 1
    assert read_metrics(tmp_path / "run" / "metrics.jsonl")[-1]["failed"] == 1


def test_a_run_starts_from_another_run(tmp_path: Path) -> None:
    first = csml.pretrain("synthetic", tmp_path / "first", preset="demo", model={"backbone": "nano"}, **SMALL, **QUEUE)
    second = from_weights(first, tmp_path / "second", **STILL)
    assert_starts_at(second, load_file(first.path / "backbone.safetensors"))
    assert csml.Run(second).config.model.backbone == "nano"


def test_a_run_starts_from_a_plain_file_of_timm(tmp_path: Path) -> None:
    net = timm.create_model("mobilenetv3_small_100")
    save_file(net.state_dict(), tmp_path / "plain.safetensors")
    run = from_weights(tmp_path / "plain.safetensors", tmp_path / "run", **STILL)
    wanted = {key: value for key, value in net.state_dict().items() if not key.startswith("classifier.")}
    assert_starts_at(run, wanted)


def test_a_run_starts_from_an_installed_package(tmp_path: Path) -> None:
    pytest.importorskip(PACKAGES["lite0"].module)
    run = from_weights("lite0", tmp_path / "run", **STILL)
    theirs = list(torch.load(package_file("lite0"), weights_only=True).values())
    ours = load_file(RunDirectory(run).start)
    assert len(theirs) == len(ours) + 2  # and a classifier
    names = list(load_backbone("lite0").state_dict())
    for name, value in zip(names, theirs, strict=False):
        assert torch.equal(ours[name], value), name
    assert_starts_at(run, ours)


def test_frozen_stages_of_a_run_are_those_of_its_start(tmp_path: Path) -> None:
    run = from_weights(
        network_file(tmp_path),
        tmp_path / "run",
        **{"model.frozen_stages": 2, "model.fixed_batchnorm": True, "epochs": 1},
    )
    before, after = load_file(RunDirectory(run).start), state(run)["method"]
    learnt = {name for name, value in before.items() if not torch.equal(after[f"query_encoder.backbone.{name}"], value)}
    parts = {".".join(name.split(".")[: 2 if name.startswith("blocks") else 1]) for name in learnt}
    assert "blocks.4" in parts
    assert not parts & {"conv_stem", "bn1", "blocks.0", "blocks.1", "blocks.2"}
    assert not any("running" in name for name in learnt)  # the statistics are fixed
