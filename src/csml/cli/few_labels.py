"""Few labels as a judge of `csml ablate`: the network of each run fine-tuned and mined, and one from scratch."""

from dataclasses import replace
from pathlib import Path

from csml.cli import finetune, mine, supervised
from csml.cli.training import continue_options
from csml.config.ablations import FewLabels, as_words
from csml.report.outcomes import FEW_LABELS


def judge(run: Path, few: FewLabels, preset: list[str], seed: int) -> int:
    """What is missing of fine-tuning, and mining after it, at every share of the labels; the exit code."""
    for fraction in few.fractions:
        tuned, mined = (_place(run, fraction) / command for command in ("finetune", "mine"))
        if not (tuned / "finetune.json").exists():
            words = [str(run), *preset, *as_words(few.finetune), "--fraction", f"{fraction:g}", "--seed", str(seed)]
            config, _ = finetune.parse(words)
            if code := finetune.finetune(replace(config, out=str(tuned)), continue_options(tuned)):
                return code
        if few.mine is not None and not (mined / "mine.json").exists():
            mining, _ = mine.parse([str(tuned), *preset, *as_words(few.mine), "--seed", str(seed)])
            if code := mine.mine(replace(mining, out=str(mined)), continue_options(mined)):
                return code
    return 0


def from_scratch(folder: Path, few: FewLabels, words: list[str], seed: int) -> int:
    """The same network with the labels alone; `words` say which network and data."""
    for fraction in few.fractions:
        out = _place(folder, fraction) / "supervised"
        if not (out / "supervised.json").exists():
            config, _ = supervised.parse([*words, "--fraction", f"{fraction:g}", "--seed", str(seed)])
            if code := supervised.supervised(replace(config, out=str(out)), continue_options(out)):
                return code
    return 0


def _place(run: Path, fraction: float) -> Path:
    return run / FEW_LABELS / f"{fraction:g}"
