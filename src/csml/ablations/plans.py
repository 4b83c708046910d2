"""Ablations: a base, named variations of it, seeds. The YAML files here mirror the paper's, at three scales."""

import itertools
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from csml.config import TWINS, flatten, read_yaml
from csml.errors import CsmlError, did_you_mean

SHIPPED: tuple[str, ...] = (
    "modules", "neighbors", "levels", "mixing", "positives", "epochs", "byol", "cost", "labels", "omega",
)  # fmt: skip
_KEYS = ("title", "scales", "base", "seeds", "variations", "grid", "knn", "linear", "few_labels", "paper", "plot")
_PLOTS = ("dots", "cost", "stages", "omega", "labels")
_NOT_SETTINGS = ("preset", "twin", "times")


@dataclass(frozen=True)
class Variation:
    """One row of the table."""

    name: str
    preset: str | None
    settings: dict[str, Any]
    """settings of `pretrain`, dotted, which override the preset; without seed and out"""
    times: dict[str, float]
    """factors for settings, such as 2 for twice the epochs"""
    facts: dict[str, Any]
    """the settings that differ from the base"""

    @property
    def command(self) -> list[str]:
        """The equivalent command, without --seed and --out."""
        return ["csml", "pretrain", *(["--preset", self.preset] if self.preset else []), *as_words(self.settings)]

    def at(self, seed: int) -> str:
        """The title of its run with a seed, unique within an ablation."""
        return f"{self.name}, seed {seed}"


LABELS_ALONE = Variation("labels alone", None, {}, {}, {})
"""The row for networks without pre-training."""


@dataclass(frozen=True)
class FewLabels:
    """An additional evaluation: networks trained on a share of the labels."""

    fractions: tuple[float, ...]
    finetune: dict[str, Any]
    """settings of `csml finetune`, dotted"""
    mine: dict[str, Any] | None
    """settings of `csml mine` after it; None: skip it"""
    scratch: dict[str, Any] | None
    """settings of `csml supervised` for a network without pre-training; None: skip it"""


@dataclass(frozen=True)
class Ablation:
    """What to run, how to evaluate it, how to show it."""

    name: str
    title: str
    seeds: tuple[int, ...]
    variations: tuple[Variation, ...]
    knn: dict[str, Any]
    """settings of `csml knn`, dotted"""
    linear: dict[str, Any]
    """settings of `csml linear`, dotted"""
    plot: str
    """dots, cost, stages, omega, labels, or a setting whose values are the x axis"""
    few_labels: FewLabels | None = None
    paper: dict[str, float] = field(default_factory=dict)
    """the paper's result for each row, in percent"""


def read_ablation(file: str, scale: str | None) -> Ablation:
    """The file at a path, or one of SHIPPED by name, at one of its scales."""
    shipped = file in SHIPPED and not Path(file).is_file()
    path = Path(str(files(__package__) / f"{file}.yaml")) if shipped else Path(file).expanduser()
    if not path.is_file():
        expected = f"give a YAML file or one of {', '.join(SHIPPED)}"
        raise CsmlError(f"there is no file {file}{did_you_mean(file, expected)}")
    tree = read_yaml(path)
    if not isinstance(tree, dict):
        raise CsmlError(f"{file}: expected keys such as base and variations")
    unknown = [key for key in tree if key not in _KEYS]
    if unknown:
        raise CsmlError(f"{file}: the key {unknown[0]} is unknown; there are {', '.join(_KEYS)}")
    return _ablation(path.stem, file, _at_scale(tree, file, scale))


def _at_scale(tree: dict[str, Any], file: str, scale: str | None) -> dict[str, Any]:
    """Merge a scale: the base overrides its settings; its seeds and evaluations override the file's."""
    scales = _mapping(tree.pop("scales", None), f"{file}: scales")
    if not scales:
        if scale is not None:
            raise CsmlError(f"scale: {file} has no scales; leave --scale out")
        return tree
    if scale not in scales:
        given = "give --scale with" if scale is None else f"{scale!r} is unknown; choose"
        raise CsmlError(f"scale: {given} one of {', '.join(scales)}")
    chosen = dict(_mapping(scales[scale], f"{file}: scales: {scale}"))
    judges = ("seeds", "knn", "linear", "few_labels", "title")
    own: dict[str, Any] = {key: chosen.pop(key) for key in judges if key in chosen}
    return {**tree, **own, "base": {**flatten(chosen), **_settings(tree, "base", file)}}


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise CsmlError(f"{where}: expected KEY: VALUE, not {value}")
    return value


def _settings(tree: dict[str, Any], key: str, where: str) -> dict[str, Any]:
    """The value of a key, as dotted settings."""
    return flatten(_mapping(tree.get(key), f"{where}: {key}"))


def _ablation(name: str, file: str, tree: dict[str, Any]) -> Ablation:
    base = _settings(tree, "base", file)
    named = _mapping(tree.get("variations"), f"{file}: variations")
    rows = {str(row): _settings(named, row, file) for row in named} | _grid(_settings(tree, "grid", file), file)
    if not rows:
        raise CsmlError(f"{file}: there is nothing to vary; give variations, or a grid")
    seeds = tree.get("seeds", [0])
    if not isinstance(seeds, list) or not seeds or not all(isinstance(seed, int) and seed >= 0 for seed in seeds):
        raise CsmlError(f"{file}: seeds: a list of numbers such as [0, 1, 2], not {seeds}")
    plot = tree.get("plot", _PLOTS[0])
    if plot not in _PLOTS and not all(plot in settings for settings in rows.values()):
        raise CsmlError(f"{file}: plot: one of {', '.join(_PLOTS)}, or a setting that every variation has, not {plot}")
    return Ablation(
        name=name,
        title=str(tree.get("title", name)),
        seeds=tuple(seeds),
        variations=tuple(_variation(row, {**base, **settings}, settings, file) for row, settings in rows.items()),
        knn=_settings(tree, "knn", file),
        linear=_settings(tree, "linear", file),
        plot=plot,
        few_labels=_few_labels(_mapping(tree.get("few_labels"), f"{file}: few_labels"), file),
        paper=_of_paper(_mapping(tree.get("paper"), f"{file}: paper"), rows, file),
    )


def _few_labels(tree: dict[str, Any], file: str) -> FewLabels | None:
    if not tree:
        return None
    unknown = [key for key in tree if key not in ("fractions", "finetune", "mine", "scratch")]
    fractions = tree.get("fractions")
    if unknown or not isinstance(fractions, list) or not all(isinstance(f, float) and 0 < f <= 1 for f in fractions):
        wanted = "fractions such as [0.01, 0.1], and settings under finetune, mine: {} and scratch: {}"
        raise CsmlError(f"{file}: few_labels: give {wanted}")
    finetune, mine, scratch = (
        flatten(_mapping(tree[key], f"{file}: few_labels: {key}")) if key in tree else None
        for key in ("finetune", "mine", "scratch")
    )
    return FewLabels(tuple(fractions), finetune or {}, mine, scratch)


def _of_paper(tree: dict[str, Any], rows: dict[str, Any], file: str) -> dict[str, float]:
    for row in tree:
        if str(row) not in rows:
            raise CsmlError(f"{file}: paper: there is no row {row!r}; there are {', '.join(rows)}")
    return {str(row): float(value) for row, value in tree.items()}


def _grid(axes: dict[str, Any], file: str) -> dict[str, dict[str, Any]]:
    """Every combination of the values of each key, named after them."""
    if not all(isinstance(values, list) and values for values in axes.values()):
        raise CsmlError(f"{file}: grid: expected a list of values for each key, such as neighbors.k: [1, 5, 10]")
    if not axes:
        return {}
    combinations = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    return {", ".join(f"{key.split('.')[-1]} {value}" for key, value in c.items()): c for c in combinations}


def _variation(name: str, settings: dict[str, Any], own: dict[str, Any], file: str) -> Variation:
    for key, instead in (("times", "times.KEY: FACTOR"), ("seed", "seeds: [0, 1] for all")):
        if key in settings:
            raise CsmlError(f"{file}: {name}: {key}: give {instead}")
    times = {key.removeprefix("times."): settings[key] for key in settings if key.startswith("times.")}
    for key, factor in times.items():
        if not isinstance(factor, int | float) or factor <= 0:
            raise CsmlError(f"{file}: {name}: times.{key}: a number above 0, not {factor}")
    preset, twin = settings.get("preset"), settings.get("twin")
    if twin is not None and (preset is None or twin not in TWINS):
        raise CsmlError(f"{file}: {name}: twin: one of {', '.join(TWINS)}, of a preset that base names, not {twin}")
    chosen = {key: value for key, value in settings.items() if key.split(".")[0] not in _NOT_SETTINGS}
    facts = {key: value for key, value in own.items() if key.split(".")[0] not in ("times", "twin")}
    return Variation(name, f"{preset}-{twin}" if twin else preset, chosen, times, facts)


def as_words(settings: dict[str, Any]) -> list[str]:
    """Settings as command-line options, to read and to repeat."""
    return [word for key, value in settings.items() for word in (f"--{key}", _as_word(value))]


def _as_word(value: Any) -> str:
    if value is None or isinstance(value, bool | list):
        return str(yaml.safe_dump(value, default_flow_style=True)).removesuffix("...\n").strip()
    return str(value)
