"""`csml.check`: problems in a set of images, found before training."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from csml.api.data import data_setting, open_splits
from csml.api.run import PathLike, Run, path_of
from csml.api.session import device_for
from csml.api.settings import given, using_config
from csml.config import PROBLEMS, CheckConfig, is_weight_name
from csml.console import show_log
from csml.data.failures import Failures
from csml.data.image_names import file_of, path_from_here
from csml.data.images import Images
from csml.data.labels import ids_in
from csml.data.tables import write_csv
from csml.distributed.launch import require_alone
from csml.distributed.world import World
from csml.errors import CsmlError
from csml.evaluation.image_quality import Quality, image_quality
from csml.evaluation.screening import likely_wrong_labels, near_duplicates, outlier_ids, outliers
from csml.evaluation.stored_features import stored_features
from csml.runs.directory import RunDirectory
from csml.sheets.contact_sheet import titled_sheet
from csml.sheets.saving import save_sheet, sheet_file
from csml.weights import load_backbone

log = logging.getLogger("csml")

_PICTURES = 10
"""Pictures per kind of problem on the sheet."""
_DEFAULT_WEIGHTS = "lite0"


@dataclass(frozen=True)
class Problem:
    """One problem of one image."""

    kind: str
    """one of `csml.config.PROBLEMS`"""
    path: str
    split: str
    """train or test"""
    label: str
    """of the image, where it has one"""
    detail: str
    """description of the problem"""
    score: float
    """severity, larger is worse: a similarity, a probability, a distance or a measure of the picture"""
    other: str = ""
    """the image that it duplicates, or the suggested class"""


class Checked(Sequence[Problem]):
    """The problems of a set of images, by kind, the worst of each first.

    Args:
        problems: all of them.
        images: number of images checked.
        fail_on: kinds that must not occur.
        unchecked: kinds that could not be checked, and why; their absence from the problems means nothing.
    """

    def __init__(
        self,
        problems: list[Problem],
        images: int,
        fail_on: Sequence[str] = (),
        unchecked: Mapping[str, str] | None = None,
    ) -> None:
        self.problems = problems
        self.images = images
        self.fail_on = tuple(fail_on)
        self.unchecked = dict(unchecked or {})

    def __len__(self) -> int:
        return len(self.problems)

    def __getitem__(self, place: Any) -> Any:
        return self.problems[place]

    def of(self, kind: str) -> list[Problem]:
        """The problems of one kind."""
        return [one for one in self.problems if one.kind == kind]

    @property
    def counts(self) -> dict[str, int]:
        """Number of images with each kind of problem."""
        return {kind: len(self.of(kind)) for kind in PROBLEMS}

    @property
    def failed(self) -> tuple[str, ...]:
        """Kinds in `fail_on` that occur."""
        return tuple(kind for kind in self.fail_on if self.counts[kind])


class _Part(NamedTuple):
    """The images of a split, as the checks see them."""

    split: str
    images: Images
    features: Tensor
    quality: Quality


@show_log()
def check(source: "Run | PathLike", *, data: Any = None, config: PathLike | None = None, **settings: Any) -> Checked:
    """Look for near-duplicates, test images that repeat training images, outliers, labels that look wrong, and
    unreadable, dark, flat, blurred, tiny or oddly shaped pictures.

    Args:
        source: a run, whose network and images are used; or images, anything that `csml pretrain` takes.
        data: the images, by default those of the run; or images in memory.
        config: a YAML file of settings.
        settings: any setting of `csml check --help`, such as `output`, `sheet` and `fail_on`.
    """
    data, in_memory = data_setting(data, source)
    made = check_config(source, config=config, **given(data=data), **settings)
    require_alone("check", made.hardware)
    wrong = [kind for kind in made.fail_on if kind not in PROBLEMS]
    if wrong:
        raise CsmlError(f"fail_on: {wrong[0]} is none of {', '.join(PROBLEMS)}")
    sheet = sheet_file(made.sheet) if made.sheet is not None else None
    parts = list(_parts(made, in_memory))
    problems = sorted(_problems(parts, made), key=lambda one: PROBLEMS.index(one.kind))
    result = Checked(problems, sum(len(part.images) for part in parts), made.fail_on, _unchecked(parts))
    if made.output is not None:
        _write(Path(made.output).expanduser(), problems)
    if sheet is not None:
        _draw(sheet, result, parts)
    return result


def check_config(
    source: "Run | PathLike", *, config: PathLike | None = None, weights: str | None = None, **settings: Any
) -> CheckConfig:
    """The settings that `check` would run with, checked."""
    path = str(path_of(source))
    if not _is_network(path):
        settings = {"data": path, **settings}
        path = weights or _DEFAULT_WEIGHTS
    return using_config(CheckConfig, weights or path, {"weights": weights or path, **settings}, config=config)


def _is_network(path: str) -> bool:
    """Whether the source is a run, a weight file or the name of weights, and not a folder or list of images."""
    if is_weight_name(path) or RunDirectory(Path(path).expanduser()).config.exists():
        return True
    return Path(path).suffix in (".safetensors", ".pt", ".pth", ".ckpt", ".bin")


def _parts(config: CheckConfig, in_memory: Any) -> Iterator[_Part]:
    """Training images, and test images where the data has a split of its own."""
    splits = open_splits(World(), config.data, config.images, in_memory)
    backbone = load_backbone(str(config.weights), config.images.channels)
    of = {"train": splits.train}
    if splits.val is not None and not len(ids_in(splits.train, splits.val)):
        of["test"] = splits.val
    for split, images in of.items():
        fabric = device_for(images, config, backbone)
        everything = Failures(images, tolerated=1.0, quiet=True)
        found = stored_features(
            backbone.to(fabric.device), images, config.images, fabric, failures=everything,
            description=f"features of {split} images",
        )  # fmt: skip
        yield _Part(split, images, found.by_stage[4], image_quality(images))


def _unchecked(parts: list[_Part]) -> dict[str, str]:
    """Kinds of problems that cannot be checked on these images, and why."""
    found: dict[str, str] = {}
    if len(parts) == 1:
        found["leaks"] = "no test images"
    labels = np.concatenate([part.images.labels for part in parts])
    counts = np.bincount(labels[labels >= 0])
    if not len(counts):
        found["wrong_labels"] = "no labels"
    elif (counts > 0).sum() < 2 or counts.max() < 2:
        found["wrong_labels"] = "too few labels"
    return found


def _problems(parts: list[_Part], config: CheckConfig) -> Iterator[Problem]:
    features = torch.cat([part.features for part in parts])
    of = _Rows(parts)
    alike = near_duplicates(features, config.similarity)
    tested = {row for row in range(len(features)) if of.split(row) == "test"}
    for group in alike:
        first = next((row for row in group if row not in tested), group[0])
        for row in group:
            if row != first:
                similarity = float(torch.cosine_similarity(features[row], features[first], dim=0))
                kind = "leaks" if row in tested and first not in tested else "duplicates"
                yield of.problem(row, kind, f"{similarity:.3f} similar", similarity, of.name(first))
    labels = np.concatenate([part.images.labels for part in parts])
    doubted = likely_wrong_labels(features, torch.from_numpy(labels), config.confidence)
    classes = parts[0].images.classes
    for row, label, confidence in zip(*(column.tolist() for column in doubted.__dict__.values()), strict=True):
        yield of.problem(row, "wrong_labels", f"looks like {classes[label]}", confidence, classes[label])
    distances = outliers(features)
    for row in outlier_ids(distances, config.far).tolist():
        yield of.problem(row, "outliers", "unlike every other image", float(distances[row]))
    for part, start in zip(parts, of.starts, strict=False):
        for kind, ids in part.quality.odd().items():
            for id in ids.tolist():
                detail, score = part.quality.in_words(kind, id)
                yield of.problem(start + id, kind, detail, score)


class _Rows:
    """Rows of all parts one after the other: their names, labels and splits."""

    def __init__(self, parts: list[_Part]) -> None:
        self.parts = parts
        self.starts = np.cumsum([0, *(len(part.images) for part in parts)]).tolist()

    def _find(self, row: int) -> tuple[_Part, int]:
        number = next(n for n in range(len(self.parts)) if row < self.starts[n + 1])
        return self.parts[number], row - self.starts[number]

    def split(self, row: int) -> str:
        return self._find(row)[0].split

    def name(self, row: int) -> str:
        """The path; for images that are not files, the split and the name, because splits may share names."""
        part, id = self._find(row)
        alone = len(self.parts) == 1 or file_of(part.images, id) is not None
        return path_from_here(part.images, id) if alone else f"{part.split}/{part.images.name(id)}"

    def problem(self, row: int, kind: str, detail: str, score: float, other: str = "") -> Problem:
        part, id = self._find(row)
        label = int(part.images.labels[id])
        named = part.images.classes[label] if label >= 0 else ""
        return Problem(kind, self.name(row), part.split, named, detail, score, other)


def _write(path: Path, problems: list[Problem]) -> None:
    try:
        rows = ({**asdict(one), "score": f"{one.score:.4f}"}.values() for one in problems)
        write_csv(path, [[field.name for field in fields(Problem)], *map(list, rows)])
    except OSError as error:
        raise CsmlError(f"output: cannot write {path} ({error.strerror})") from error
    log.info("%d problems written to %s", len(problems), path)


def _draw(path: Path, checked: Checked, parts: list[_Part]) -> None:
    """A row of pictures for each kind, the worst first; next to each duplicate, its original."""
    names = {_Rows(parts).name(row): row for row in range(checked.images)}
    find = _Rows(parts)._find
    rows = []
    for kind, count in checked.counts.items():
        if kind == "unreadable" or not count:
            continue
        pairs = [(one.path, one.other) if one.other in names else (one.path,) for one in checked.of(kind)]
        shown = [name for pair in pairs for name in pair][:_PICTURES]
        pictures = [part.images.read(id) for part, id in (find(names[name]) for name in shown)]
        rows.append((f"{kind.replace('_', ' ')}: {count}", pictures))
    if not rows:
        log.info("sheet: nothing to show")
        return
    save_sheet(titled_sheet(rows), path)
    log.info("pictures in %s", path)
