"""The runs of an ablation: plans them, checks whether each is finished, carries them out and reads their results."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from csml.ablations.few_labels import evaluate, from_scratch, is_complete
from csml.ablations.outcomes import Outcome, history, measure
from csml.ablations.plans import LABELS_ALONE, Ablation, FewLabels, Variation
from csml.api.evaluating import is_evaluated, run_knn, run_linear
from csml.api.pretraining import pretrain_config, run_pretrain
from csml.api.session import continue_options
from csml.config import KnnConfig, Layer, LinearConfig, PretrainConfig, as_settings, configure, flatten, preset_settings
from csml.errors import CsmlError
from csml.files import cache_key
from csml.runs.directory import RunDirectory
from csml.runs.metadata import read_metadata
from csml.runs.metrics import read_metrics
from csml.runs.settings import OF_THE_MACHINE, inherited, refuse_others

_ALONE = {"baselines": False}
"""Variations are compared with each other; baselines would be recomputed for each."""


@dataclass(frozen=True)
class PlannedRun:
    """One variation with one seed."""

    variation: Variation
    seed: int
    config: PretrainConfig
    knn: KnnConfig
    linear: LinearConfig
    few: FewLabels | None

    @property
    def run(self) -> RunDirectory:
        return RunDirectory(Path(str(self.config.out)))

    @property
    def title(self) -> str:
        return self.variation.at(self.seed)

    def is_done(self) -> bool:
        """Whether it is trained. Raises if its directory was made with other settings."""
        if not self.run.config.exists():
            return False
        refuse_others(self.run.root, self.config)
        records = read_metrics(self.run.metrics)
        return bool(records) and records[-1]["epoch"] == self.config.epochs

    def carry_out(self) -> None:
        """Train and evaluate whatever is missing."""
        if not self.is_done():
            run_pretrain(self.config, continue_options(self.run))
        root = str(self.run.root)
        if not is_evaluated(self.run.result("knn"), root, self.knn):
            run_knn(root, self.knn)
        if not is_evaluated(self.run.result("linear"), root, self.linear):
            run_linear(root, self.linear, resume=None)
        if self.few:
            evaluate(self.run, self.few, self.variation.preset, self.seed)

    def outcome(self) -> Outcome:
        """What was found."""
        commit = read_metadata(self.run.root).get("commit")
        return Outcome(self.variation, self.seed, measure(self.run, self.few), history(self.run), commit)


@dataclass(frozen=True)
class LabelsAlone:
    """The same network trained on the labels alone, with one seed."""

    run: RunDirectory
    seed: int
    preset: str | None
    settings: dict[str, Any]
    """settings of network and data, dotted"""
    few: FewLabels

    @property
    def title(self) -> str:
        return LABELS_ALONE.at(self.seed)

    def is_done(self) -> bool:
        return is_complete(self.run, self.few)

    def carry_out(self) -> None:
        """Train what is missing."""
        from_scratch(self.run, self.few, self.preset, self.settings, self.seed)

    def outcome(self) -> Outcome:
        """What was found."""
        return Outcome(LABELS_ALONE, self.seed, measure(self.run, self.few), [])


def planned(ablation: Ablation, data: str | None, folder: Path, shared: Path | None) -> list[PlannedRun]:
    """Every variation with every seed, checked; in `folder` by name, or in `shared` by a digest of the settings."""
    _refuse_equal_folders(ablation)
    runs = []
    for seed in ablation.seeds:
        for variation in ablation.variations:
            config = run_config(variation, seed, data, folder)
            if shared is not None:
                config = replace(config, out=str(shared / _digest(config)))
            # The settings that knn and linear inherit from a run that may not exist yet; here also images.sample, so
            # that all rows of a table are evaluated on their training images.
            known = Layer(inherited(flatten(as_settings(config))), str(config.out))
            by_preset = preset_settings(variation.preset, "linear") if variation.preset else {}
            alone = Layer(_ALONE)
            knn = configure(KnnConfig, known, alone, Layer(ablation.knn, "knn"))
            linear = configure(LinearConfig, known, alone, Layer(by_preset, "preset"), Layer(ablation.linear, "linear"))
            runs.append(PlannedRun(variation, seed, config, knn, linear, ablation.few_labels))
    return runs


def labels_alone(runs: Sequence[PlannedRun], few: FewLabels, folder: Path, shared: Path | None) -> list[LabelsAlone]:
    """One run for each seed, with the data and the network of the first run with that seed."""
    same = ("data", "images.", "hardware.", "model.backbone", "model.small_images")
    found: dict[int, LabelsAlone] = {}
    for run in runs:
        flat = flatten(as_settings(run.config))
        settings = {key: value for key, value in flat.items() if key.startswith(same) and value is not None}
        place = folder / "labels-alone" / f"seed-{run.seed}"
        if shared is not None:
            place = shared / cache_key(
                LABELS_ALONE.name, run.variation.preset, _learnt(settings), few.scratch, run.seed
            )
        chosen = {**settings, **(few.scratch or {})}
        found.setdefault(run.seed, LabelsAlone(RunDirectory(place), run.seed, run.variation.preset, chosen, few))
    return list(found.values())


def run_config(variation: Variation, seed: int, data: str | None, folder: Path) -> PretrainConfig:
    """The settings of one run, checked."""
    given = {
        **{f"monitor.{key}": value for key, value in _ALONE.items()},
        **variation.settings,
        "seed": seed,
        "out": str(folder / _slug(variation.name) / f"seed-{seed}"),
    }
    if data is not None:
        given["data"] = data
    try:
        config = pretrain_config(preset=variation.preset, **given)
        if variation.times:
            before = flatten(as_settings(config))
            for key, factor in variation.times.items():
                if not isinstance(before.get(key), int | float):
                    raise CsmlError(f"times.{key}: {key} is not a number that could be multiplied")
                changed = factor * before[key]
                given[key] = round(changed) if isinstance(before[key], int) else changed
            config = pretrain_config(preset=variation.preset, **given)
    except CsmlError as error:
        raise CsmlError(f"{variation.name}: {error}") from error
    return config


def _digest(config: PretrainConfig) -> str:
    """A name shared by runs with equal settings; settings added to csml later do not change it."""
    defaults = flatten(as_settings(PretrainConfig()))
    changed = {key: value for key, value in flatten(as_settings(config)).items() if value != defaults[key]}
    return cache_key(_learnt(changed))


def _learnt(settings: dict[str, Any]) -> list[tuple[str, Any]]:
    """The settings that determine the result of a run, without those of the machine, in a fixed order."""
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
