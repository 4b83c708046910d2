"""Help: short by default, whole on request, and hints that are right."""

import re
import subprocess
import sys

import pytest

from conftest import csml
from csml.cli.commands import COMMANDS
from csml.cli.help import common_settings
from csml.config import PretrainConfig, preset_settings
from csml.config.build import leaves, sections
from csml.config.documentation import described
from csml.config.layers import suggestions

PRETRAIN = [*leaves(PretrainConfig), *sections(PretrainConfig), "preset", "resume", "overwrite", "config"]


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_the_help_of_a_command_fits_the_eye(command: str) -> None:
    schema = COMMANDS[command].schema
    shown = {leaf.key for leaf in common_settings(schema)}
    assert len(shown) <= 15
    text = csml(command, "--help").stdout
    assert all(f"--{key} " in text for key in shown)
    assert not any(f"--{key} " in text for key in leaves(schema).keys() - shown)
    assert (f"csml {command} --help all" in text) is (shown != leaves(schema).keys())
    assert len(text.splitlines()) < 100


def test_what_people_change_in_pretraining_is_shown() -> None:
    shown = {leaf.key for leaf in common_settings(PretrainConfig)}
    assert {"data", "out", "epochs", "batch_size", "seed", "images.size", "model.weights", "model.backbone"} <= shown


@pytest.mark.parametrize(
    ("command", "own"),
    [("select", ["by", "labels", "output"]), ("check", ["weights", "output", "sheet", "fail_on", "similarity"])],
)
def test_the_settings_of_a_command_come_before_those_of_images_and_hardware(command: str, own: list[str]) -> None:
    text = csml(command, "--help").stdout
    places = [text.index(f"--{key} ") for key in ("data", *own, "images.size", "hardware.devices")]
    assert places == sorted(places)


def help_of(command: str, *words: str) -> dict[str, str]:
    """The help of each setting of a command, in one line."""
    parts = re.split(r"\n  --([a-z_.0-9]+) ", csml(command, "--help", *words).stdout)
    return {key: " ".join(text.split()) for key, text in zip(parts[1::2], parts[2::2], strict=True)}


def test_the_help_shows_the_defaults_that_hold() -> None:
    pretraining = help_of("pretrain")
    assert "(needed, unless the preset or --config names images)" in pretraining["data"]
    assert "default: that of the preset, otherwise 1024" in pretraining["batch_size"]
    for command in ("finetune", "mine", "embed", "neighbors", "select", "knn", "linear"):
        assert "(default: the images of the run)" in help_of(command)["data"], command
    assert "(default: SOURCE, or the images of the run)" in help_of("check")["data"]
    assert "default: synthetic" in help_of("demo")["data"] and "default: synthetic" in help_of("detect")["data"]
    of_images = help_of("knn", "images")
    assert "default: that of the run, otherwise 224" in of_images["images.size"]
    assert "default" not in of_images["images.sample"].partition("(")[2]  # None is no default to show
    assert "default: 1)" in help_of("knn", "hardware")["hardware.devices"]


def test_what_the_preset_auto_chooses_is_said_not_to_have_a_fixed_default() -> None:
    chosen = {key for name in ("photos", "photos-gpu", "photos-scratch") for key in preset_settings(name)}
    for leaf in common_settings(PretrainConfig):
        if leaf.key in chosen and leaf.default is not None:
            assert "that of the preset" in described(leaf), leaf.key
    assert "the preset auto chooses batch size, epochs" in " ".join(csml("pretrain", "--help").stdout.split())


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_help_all_shows_every_setting(command: str) -> None:
    for words in (["--help", "all"], ["--help=all"]):
        text = csml(command, *words).stdout
        assert all(f"--{key} " in text for key in leaves(COMMANDS[command].schema))


def test_help_of_a_section_shows_that_section_only() -> None:
    text = csml("pretrain", "--help", "neighbors").stdout
    assert "--neighbors.refresh_every" in text and "--optimizer" not in text and "--preset" in text.splitlines()[0]
    wrong = csml("knn", "--help", "neighbors")
    assert wrong.returncode == 2 and "one of all, images, hardware" in wrong.stderr


def test_help_with_a_command_is_its_help() -> None:
    assert csml("help", "knn").stdout == csml("knn", "--help").stdout


@pytest.mark.parametrize(
    ("typed", "right"),
    [
        ("weights", ["model.weights"]),
        ("model.weight", ["model.weights"]),
        ("contrast.temprature", ["contrast.temperature"]),
        ("temprature", ["contrast.temperature"]),
        ("lr", ["optimizer.lr_per_256"]),
        ("optimiser.lr", ["optimizer.lr_per_256"]),
        ("batch", ["batch_size"]),
        ("output", ["out"]),
        ("epoch", ["epochs"]),
        ("workers", ["images.workers"]),
        ("image.size", ["images.size"]),
        ("size", ["images.size", "neighbors.size"]),
        ("momentum", ["optimizer.momentum", "contrast.momentum", "byol.momentum"]),
        ("presett", ["preset"]),
        ("xyz", []),
        ("foo.bar", []),
    ],
)
def test_a_mistyped_setting_suggests_the_nearest_real_one(typed: str, right: list[str]) -> None:
    assert suggestions(typed, PRETRAIN) == right


def test_the_suggestion_stands_in_the_message() -> None:
    assert "unknown option --weights; did you mean --model.weights?" in csml("pretrain", "--weights", "x").stderr
    assert "did you mean --images.size or --neighbors.size?" in csml("pretrain", "--size", "64").stderr
    assert "there is no command 'pretain'; did you mean pretrain?" in csml("pretain").stderr
    assert "choose one of demo, pretrain," in csml("xyz").stderr


def test_help_presets_and_completion_do_not_wait_for_torch() -> None:
    code = """
import contextlib, io, sys
from csml.cli import main
for words in ["--help"], ["pretrain", "--help"], ["detect", "--help", "all"], ["presets"], ["completion", "zsh"]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main(words)
    assert not {"torch", "numpy"} & set(sys.modules), words
"""
    subprocess.run([sys.executable, "-c", code], check=True)
