"""Evaluation of an ablation with few labels: each run's network fine-tuned and mined, and one trained from scratch."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from csml.ablations.plans import FewLabels
from csml.api.classifiers import finetune_config, run_finetune, run_supervised, supervised_config
from csml.api.mining import mine_config, run_mine
from csml.api.session import Options, continue_options
from csml.config import ClassifierConfig
from csml.runs.directory import RunDirectory
from csml.runs.settings import read_settings, refuse_others

C = TypeVar("C", bound=ClassifierConfig)


def evaluate(run: RunDirectory, few: FewLabels, preset: str | None, seed: int) -> None:
    """Fine-tune, then mine, with every share of the labels for which the result is missing."""
    sample = {"images.sample": read_settings(run.root).get("images.sample")}  # the training images of the run
    for fraction in few.fractions:
        tuned, mined = (run.few_labels(fraction, verb) for verb in ("finetune", "mine"))
        settings = {"how": "paper", **sample, **few.finetune, "fraction": fraction, "seed": seed}
        _complete("finetune", tuned, finetune_config(run.root, preset=preset, **settings), run_finetune)
        if few.mine is not None:
            config = mine_config(tuned.root, preset=preset, **{**sample, **few.mine, "seed": seed})
            _complete("mine", mined, config, run_mine)


def from_scratch(folder: RunDirectory, few: FewLabels, preset: str | None, settings: dict[str, Any], seed: int) -> None:
    """Train the same network on the labels alone; `settings` define network and data."""
    for fraction in few.fractions:
        config = supervised_config(preset=preset, **{**settings, "fraction": fraction, "seed": seed})
        _complete("supervised", folder.few_labels(fraction, "supervised"), config, run_supervised)


def is_complete(folder: RunDirectory, few: FewLabels) -> bool:
    """Whether `from_scratch` is finished."""
    runs = (folder.few_labels(fraction, "supervised") for fraction in few.fractions)
    return all(run.result("supervised").exists() for run in runs)


def _complete(verb: str, run: RunDirectory, config: C, train: Callable[[C, Options], Path]) -> None:
    """Train unless the result exists; a result with other settings is refused."""
    if not run.result(verb).exists():
        train(replace(config, out=str(run.root)), continue_options(run))
        return
    # Weights and network are those of the run around it, and a batch larger than the labels was cut to their number.
    refuse_others(run.root, config, besides=("weights", "model.", "batch_size"))
