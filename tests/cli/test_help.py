"""Help: short by default, whole on request, and hints that are right."""

import subprocess
import sys

import pytest

from conftest import csml
from csml.cli.commands import COMMANDS
from csml.cli.help import common_settings
from csml.config import PretrainConfig
from csml.config.build import leaves, sections
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
