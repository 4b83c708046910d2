"""Few labels as a judge of `csml ablate`: the network of each run fine-tuned and mined, and one from scratch."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from csml.cli import finetune, mine, supervised
from csml.cli.training import Options, continue_options
from csml.config.ablations import FewLabels, as_words
from csml.config.run_settings import refuse_others
from csml.config.schema import ClassifierConfig
from csml.report.outcomes import FEW_LABELS

C = TypeVar("C", bound=ClassifierConfig)


def judge(run: Path, few: FewLabels, preset: list[str], seed: int) -> int:
    """What is missing of fine-tuning, and mining after it, at every share of the labels; the exit code."""
    for fraction in few.fractions:
        tuned, mined = (_place(run, fraction) / command for command in ("finetune", "mine"))
        words = [str(run), *preset, *as_words(few.finetune), "--fraction", f"{fraction:g}", "--seed", str(seed)]
        if code := _completed(tuned, finetune.parse(words)[0], finetune.finetune):
            return code
        if few.mine is not None:
            words = [str(tuned), *preset, *as_words(few.mine), "--seed", str(seed)]
            if code := _completed(mined, mine.parse(words)[0], mine.mine):
                return code
    return 0


def from_scratch(folder: Path, few: FewLabels, words: list[str], seed: int) -> int:
    """The same network with the labels alone; `words` say which network and data."""
    for fraction in few.fractions:
        config, _ = supervised.parse([*words, "--fraction", f"{fraction:g}", "--seed", str(seed)])
        if code := _completed(_place(folder, fraction) / "supervised", config, supervised.supervised):
            return code
    return 0


def is_complete(folder: Path, few: FewLabels) -> bool:
    """Whether `from_scratch` has nothing left to do."""
    return all(_result(_place(folder, fraction) / "supervised").exists() for fraction in few.fractions)


def _completed(out: Path, config: C, train: Callable[[C, Options], int]) -> int:
    """Train unless the result is there; the exit code. A result of other settings is refused."""
    if not _result(out).exists():
        return train(replace(config, out=str(out)), continue_options(out))
    # Weights and network are those of the run around it, and a batch larger than the labels was cut to them.
    refuse_others(out, config, besides=("weights", "model.", "batch_size"))
    return 0


def _result(out: Path) -> Path:
    return out / f"{out.name}.json"


def _place(run: Path, fraction: float) -> Path:
    return run / FEW_LABELS / f"{fraction:g}"
