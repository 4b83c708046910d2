"""The runs of an ablation: which there are, whether one is done, how it is carried out and what was found."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from csml.cli import knn, linear
from csml.cli.judging import is_judged, settings_for
from csml.cli.pretrain import parse as parse_pretrain
from csml.cli.pretrain import pretrain
from csml.cli.training import continue_options
from csml.config.ablations import LABELS_ALONE, Ablation, FewLabels, Variation, as_words
from csml.config.checks import check_knn, check_linear
from csml.config.presets import flatten
from csml.config.protocols import KnnConfig, LinearConfig
from csml.config.run_settings import OF_THE_MACHINE, refuse_others, settings_of
from csml.config.schema import PretrainConfig
from csml.data.cache import cache_key
from csml.errors import CsmlError

if TYPE_CHECKING:
    from csml.report.outcomes import Outcome


@dataclass(frozen=True)
class PlannedRun:
    """One variation at one seed."""

    variation: Variation
    seed: int
    config: PretrainConfig
    knn: KnnConfig
    linear: LinearConfig
    few: FewLabels | None

    @property
    def root(self) -> Path:
        return Path(str(self.config.out))

    @property
    def title(self) -> str:
        return self.variation.at(self.seed)

    def is_done(self) -> bool:
        """Whether it is trained. A directory made with other settings is refused, never mixed into a table."""
        from csml.training.metrics import read_metrics

        if not (self.root / "config.yaml").exists():
            return False
        refuse_others(self.root, self.config)
        records = read_metrics(self.root / "metrics.jsonl")
        return bool(records) and records[-1]["epoch"] == self.config.epochs

    def carry_out(self) -> int:
        """Train what is left, judge where that was not done; the exit code."""
        from csml.cli.few_labels import judge

        if not self.is_done() and (code := pretrain(self.config, continue_options(self.root))):
            return code
        root = str(self.root)
        if not is_judged(self.root / "knn.json", root, self.knn):
            knn.carry_out(root, self.knn)
        judged = is_judged(self.root / "linear.json", root, self.linear)
        if not judged and (code := linear.carry_out(root, self.linear, resume="can")):
            return code
        return judge(self.root, self.few, self.variation.preset, self.seed) if self.few else 0

    def outcome(self) -> "Outcome":
        """What was found."""
        from csml.report.outcomes import Outcome, history, measure
        from csml.training.run_directory import read_facts

        found, commit = measure(self.root, self.few), read_facts(self.root).get("commit")
        return Outcome(self.variation, self.seed, found, history(self.root), commit)


@dataclass(frozen=True)
class LabelsAlone:
    """The same network with the labels alone, at one seed."""

    root: Path
    seed: int
    words: tuple[str, ...]
    """which network and data"""
    few: FewLabels

    @property
    def title(self) -> str:
        return LABELS_ALONE.at(self.seed)

    def is_done(self) -> bool:
        from csml.cli.few_labels import is_complete

        return is_complete(self.root, self.few)

    def carry_out(self) -> int:
        """Train what is missing; the exit code."""
        from csml.cli.few_labels import from_scratch

        return from_scratch(self.root, self.few, list(self.words), self.seed)

    def outcome(self) -> "Outcome":
        """What was found."""
        from csml.report.outcomes import Outcome, measure

        return Outcome(LABELS_ALONE, self.seed, measure(self.root, self.few), [])


def planned(ablation: Ablation, data: str | None, folder: Path, shared: Path | None) -> list[PlannedRun]:
    """Every variation at every seed, checked; in `folder` under their names, or in `shared` under their settings'."""
    _refuse_equal_folders(ablation)
    runs = []
    for seed in ablation.seeds:
        for variation in ablation.variations:
            config = run_config(variation, seed, data, folder)
            if shared is not None:
                config = replace(config, out=str(shared / _digest(config)))
            by_knn = settings_for("knn", KnnConfig, config, as_words(ablation.knn))
            by_linear = settings_for("linear", LinearConfig, config, [*variation.preset, *as_words(ablation.linear)])
            check_knn(by_knn)
            check_linear(by_linear)
            runs.append(PlannedRun(variation, seed, config, by_knn, by_linear, ablation.few_labels))
    return runs


def labels_alone(runs: Sequence[PlannedRun], few: FewLabels, folder: Path, shared: Path | None) -> list[LabelsAlone]:
    """One for each seed, with the data and the network of the first run that has it."""
    same = ("data", "images.", "hardware.", "model.backbone", "model.small_images")
    found: dict[int, LabelsAlone] = {}
    for run in runs:
        flat = flatten(settings_of(run.config))
        settings = {key: value for key, value in flat.items() if key.startswith(same) and value is not None}
        words = (*run.variation.preset, *as_words(settings), *as_words(few.scratch or {}))
        place = folder / "labels-alone" / f"seed-{run.seed}"
        if shared is not None:
            place = shared / cache_key(
                LABELS_ALONE.name, run.variation.preset, _learnt(settings), few.scratch, run.seed
            )
        found.setdefault(run.seed, LabelsAlone(place, run.seed, words, few))
    return list(found.values())


def run_config(variation: Variation, seed: int, data: str | None, folder: Path) -> PretrainConfig:
    """The settings of one run, checked."""
    words = [*variation.arguments, "--seed", str(seed), "--out", str(folder / _slug(variation.name) / f"seed-{seed}")]
    if data is not None:
        words += ["--data", data]
    try:
        config, _ = parse_pretrain(words)
        if variation.times:
            before = flatten(settings_of(config))
            for key, factor in variation.times.items():
                if not isinstance(before.get(key), int | float):
                    raise CsmlError(f"times.{key}: {key} is not a number that could be multiplied")
                changed = factor * before[key]
                words += [f"--{key}", str(round(changed) if isinstance(before[key], int) else changed)]
            config, _ = parse_pretrain(words)
    except CsmlError as error:
        raise CsmlError(f"{variation.name}: {error}") from error
    return config


def _digest(config: PretrainConfig) -> str:
    """A name that runs of equal settings have in common."""
    return cache_key(_learnt(flatten(settings_of(config))))


def _learnt(settings: dict[str, Any]) -> list[tuple[str, Any]]:
    """What decides the outcome of a run, not the machine's part, in a fixed order."""
    return sorted((key, value) for key, value in settings.items() if not key.startswith(OF_THE_MACHINE))


def _slug(name: str) -> str:
    """A folder for a variation: `MoCo v2, double epochs` → `moco-v2-double-epochs`."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().replace(" + ", "+")
    return re.sub(r"[^A-Za-z0-9_.+]+", "-", plain).strip("-.+").lower()


def _refuse_equal_folders(ablation: Ablation) -> None:
    folders: dict[str, str] = {}
    for name in (variation.name for variation in ablation.variations):
        other = folders.setdefault(_slug(name), name)
        if other != name or not _slug(name):
            raise CsmlError(f"variations: {name!r} needs a folder name of its own; use other letters or digits")
