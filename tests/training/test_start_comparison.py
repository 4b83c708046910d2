"""A run from weights never ends worse than it started: which point between start and end is kept."""

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric
from safetensors.torch import load_file
from torch import nn

import csml
from csml.config import ImagesConfig
from csml.data.images import ArrayImages
from csml.models.backbones import Backbone, build_backbone
from csml.training.start_comparison import Signals, StartComparison, interpolated
from csml.weights import load_backbone

CONFIG = ImagesConfig(size=32, eval_crop=1.0)


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    return Fabric(accelerator="cpu", devices=1)


def pictures(labeled: bool = True) -> ArrayImages:
    """Two classes, red and blue, with noise."""
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 2
    pixels = rng.integers(0, 160, (60, 32, 32, 3))
    pixels[labels == 0, :, :, 0] += 90
    pixels[labels == 1, :, :, 2] += 90
    known = labels if labeled else np.full(60, -1)
    return ArrayImages(pixels.astype(np.uint8), known, ("red", "blue") if labeled else (), "two colours")


def blind(net: Backbone) -> Backbone:
    """The same network, ruined: all images have the same feature, but for noise."""
    ruined = copy.deepcopy(net)
    for parameter in ruined.parameters():
        nn.init.zeros_(parameter)
    return ruined


@pytest.mark.parametrize("labeled", [True, False])
def test_of_ruined_weights_nothing_is_kept(labeled: bool, fabric: Fabric) -> None:
    start = build_backbone("nano")
    start_comparison = StartComparison(pictures(labeled), CONFIG, fabric, start)
    end = blind(start)
    assert start_comparison.is_worse(start_comparison.signals(end))
    share, compared = start_comparison.choose(end)
    assert share < 1
    assert compared["compared"]["0"]["agreement"] == 1
    expected = interpolated(start.state_dict(), blind(start).state_dict(), share)
    for name, value in end.state_dict().items():
        torch.testing.assert_close(value, expected[name])


def test_equal_weights_count_as_the_end_and_not_as_worse(fabric: Fabric) -> None:
    start = build_backbone("nano")
    start_comparison = StartComparison(pictures(), CONFIG, fabric, start)
    assert not start_comparison.is_worse(start_comparison.signals(start))
    assert start_comparison.choose(copy.deepcopy(start))[0] == 1


@pytest.mark.parametrize(
    ("accuracies", "share"),
    [
        ((0.80, 0.90, 0.89, 0.87), 1),  # the last is within the standard error of the best, 0.039
        ((0.80, 0.90, 0.85, 0.84), 0.5),
        ((0.79, 0.78, 0.79, 0.79), 0),  # within the error of the start, but below it
        ((0.80, 0.79, 0.80, 0.79), 0.75),
    ],
)
def test_the_farthest_point_is_kept_that_is_neither_below_the_start_nor_clearly_below_another(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch, accuracies: tuple[float, ...], share: float
) -> None:
    start = build_backbone("nano")
    start_comparison = StartComparison(pictures(), CONFIG, fabric, start)
    start_comparison.start = Signals(100, 1, 0.8)
    found = iter(accuracies[:3])
    monkeypatch.setattr(start_comparison, "signals", lambda backbone: Signals(100, 1, next(found)))
    assert start_comparison.choose(start, at_end=Signals(100, 1, accuracies[3]))[0] == share


def test_a_difference_within_one_standard_error_is_not_worse(fabric: Fabric) -> None:
    start_comparison = StartComparison(pictures(), CONFIG, fabric, build_backbone("nano"))
    start_comparison.start = Signals(100, 1, 0.8)  # a standard error over 60 images is 0.052
    assert not start_comparison.is_worse(Signals(1, 0, 0.76))
    assert start_comparison.is_worse(Signals(100, 1, 0.74))


def test_interpolation_is_a_straight_line_and_keeps_counters() -> None:
    start, end = ({"w": torch.full((2,), v), "n": torch.tensor(int(v))} for v in (1.0, 3.0))
    half = interpolated(start, end, 0.5)
    assert half["w"].tolist() == [2, 2] and half["n"] == 3


def test_a_run_from_weights_compares_itself_with_its_start(tmp_path: Path) -> None:
    """The start is kept in the run; what was compared is written; the backbone is the point that was chosen."""
    small = {"epochs": 2, "batch_size": 16, "images": {"size": 32, "eval_crop": 1.0}, "model": {"frozen_stages": 1}}
    machine = {"hardware": {"threads": 1, "precision": "32-true"}, "monitor": {"knn_every": 0, "tensorboard": False}}
    data = (pictures().pixels, pictures().labels)
    contrast = {"queue_length": 16}
    first = csml.pretrain(
        data, tmp_path / "first", preset="demo", batch_size=16, epochs=1, contrast=contrast, model={"backbone": "nano"},
        neighbors={"warmup_epochs": 0, "k": 3}, **machine,
    )  # fmt: skip
    further = csml.pretrain(
        data, tmp_path / "further", weights=first, contrast=contrast, neighbors={"k": 3}, **small, **machine
    )
    assert further.config.model.backbone == "nano" and further.config.model.fixed_batchnorm
    start, end = (load_file(tmp_path / "further" / name) for name in ("start.safetensors", "backbone.safetensors"))
    same = load_backbone(first.path).state_dict()
    assert all(torch.equal(start[name], value) for name, value in same.items())
    frozen = [name for name in end if name.startswith(("conv1", "bn1", "layer1"))]
    assert all(torch.equal(start[name], end[name]) for name in frozen)
    statistics = [name for name in end if "running" in name]
    assert all(torch.equal(start[name], end[name]) for name in statistics)
    kept = json.loads((tmp_path / "further" / "kept.json").read_text())
    assert kept["share"] in (0, 0.25, 0.5, 0.75, 1) and set(kept["compared"]) == {"0", "0.25", "0.5", "0.75", "1"}
    assert {"start/rank_me", "start/agreement", "start/knn20"} <= set(further.metrics.columns)
    accuracy = {float(share): signals["knn20"] for share, signals in kept["compared"].items()}
    best = max(accuracy.values())
    least = max(accuracy[0], best - (best * (1 - best) / kept["images"]) ** 0.5)
    assert kept["share"] == max(share for share in accuracy if accuracy[share] >= least)
