"""Which images have which label: from class folders, a table, a list of names, or a fraction of each class."""

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from csml.data.concat import ConcatImages
from csml.data.image_names import Names
from csml.data.images import UNLABELED, Images, Subset
from csml.data.open import DataSplits, hold_out
from csml.data.tables import read_list, read_table, write_csv
from csml.errors import CsmlError, some

HELD_OUT = 0.2
"""Default share of the labels of a table that is held out."""
_FEW, _FEW_PER_CLASS = 100, 5
"""Fewer labels, in total or left per class, are not held out if cross-validation can estimate the accuracy instead."""
_SHOWN = 3
"""Largest number of names in a message."""


@dataclass(frozen=True)
class LabeledData:
    """The images of a run, with and without labels."""

    images: Images
    """all images, labelled or not"""
    train: Images
    """labelled images for training"""
    val: Images | None
    """labelled images for testing, with the same classes"""
    unlabeled: np.ndarray
    """ids in `images` of the images that have no label and are not test images"""
    notes: tuple[str, ...] = ()
    """for the log: how the labels were read, and anything unusual"""


def choose_labels(
    data: DataSplits,
    table: str | None,
    names: str | None,
    fraction: float | None,
    holdout: float | None,
    seed: int,
    per_class: int | None = None,
) -> LabeledData:
    """Choose the labelled training and test images of `data`.

    Args:
        data: the opened data.
        table: a CSV or JSON-lines file with path and label, used instead of the class folders.
        names: a file with one image name per line; only these images keep their label.
        fraction: share of each class, at least one image, that keeps its label.
        holdout: share of the table's labels to test on if the data has no labelled test images;
            None: HELD_OUT, or 0 if there are few labels.
        seed: seed of the random choices for `fraction`, `per_class` and `holdout`.
        per_class: number of images of each class that keep their label.
    """
    notes: list[str] = []
    if table is not None:
        train, val = _from_table(data, Path(table).expanduser(), holdout, seed, notes)
    elif data.labeled is not None and data.val is not None:
        train, val = data.labeled, data.val
    else:
        raise CsmlError(
            "data: there are no labels; give class folders, or --labels FILE with path and label of some images "
            "(csml select writes one to fill in; in csml explore you label by looking)"
        )
    if names is not None:
        train = _named(train, val, Path(names).expanduser(), notes)
    if fraction is not None:
        chosen = stratified(train.labels, fraction, seed)
        notes.append(f"fraction {fraction:g}: {len(chosen):,} of {len(train):,} labels, seed {seed}")
        train = Subset(train, chosen)
    if per_class is not None:
        chosen = of_each_class(train.labels, lambda size: per_class, seed)
        notes.append(f"per_class {per_class}: {len(chosen):,} of {len(train):,} labels, seed {seed}")
        train = Subset(train, chosen)
    _check_classes(train, val, notes)
    return LabeledData(data.train, train, val, _unlabeled(data.train, train, val), tuple(notes))


def _unlabeled(images: Images, train: Images, val: Images | None) -> np.ndarray:
    known = [ids_in(images, split) for split in (train, val) if split is not None]
    return np.setdiff1d(np.arange(len(images)), np.concatenate(known))


def stratified(labels: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """Sorted ids of a random share of each class, rounded, at least one image; the same for the same seed."""
    return of_each_class(labels, lambda size: max(1, round(fraction * size)), seed)


def of_each_class(labels: np.ndarray, count: Callable[[int], int], seed: int) -> np.ndarray:
    """Sorted ids of random images of each class; `count` maps the size of a class to their number."""
    rng = np.random.default_rng(seed)
    chosen = []
    for label in np.unique(labels[labels != UNLABELED]):
        members = np.flatnonzero(labels == label)
        chosen.append(rng.permutation(members)[: count(len(members))])
    return np.sort(np.concatenate(chosen)) if chosen else np.empty(0, np.int64)


def ids_in(images: Images, subset: Images) -> np.ndarray:
    """Ids in `images` of the images of `subset`, through any number of subsets; empty if it comes from elsewhere."""
    if isinstance(subset, ConcatImages):
        return np.concatenate([ids_in(images, each) for each in subset.members])
    ids = np.arange(len(subset))
    while subset is not images:
        if not isinstance(subset, Subset):
            return np.empty(0, np.int64)
        ids, subset = subset.ids[ids], subset.images
    return ids


def _from_table(
    data: DataSplits, path: Path, holdout: float | None, seed: int, notes: list[str]
) -> tuple[Images, Images | None]:
    rows, known = read_table(path), data.train.classes
    if not {label for _, _, label in rows} & set(known):
        known = ()  # the folders are not the table's classes, but for example years or cameras
    found = _label_by_id(data.train, rows, known, path, notes)
    classes = known or tuple(sorted(set(found.values())))
    ids = np.array(sorted(found))
    labels = np.array([classes.index(found[id]) for id in ids.tolist()])
    notes.append(f"{path}: {len(ids):,} labels of {len(classes)} classes")
    labeled = Subset(data.train, ids, labels, classes)
    if known and data.val is not None:
        tested = np.isin(ids, ids_in(data.train, data.val))
        if tested.any():
            notes.append(f"labels: {tested.sum()} of them belong to test images and are not used for training")
        return Subset(labeled, np.flatnonzero(~tested)), data.val
    return _with_some_held_out(labeled, holdout, seed, notes)


def _label_by_id(
    images: Images, rows: list[tuple[int, str, str]], known: tuple[str, ...], path: Path, notes: list[str]
) -> dict[int, str]:
    """The label of each image that a table names; raises if it contradicts itself or the known classes."""
    names = Names(images)
    found: dict[int, tuple[str, int]] = {}
    missing, repeated = [], 0
    for line, name, label in rows:
        id = names.find(name)
        if known and label not in known:
            close = difflib.get_close_matches(label, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"the folders are {', '.join(known[:_SHOWN])}, …"
            raise CsmlError(f"labels: {path}, line {line}: the class {label!r} is not a folder; {hint}")
        if id is None:
            missing.append(name)
        elif id in found and found[id][0] != label:
            before, where = found[id]
            raise CsmlError(f"labels: {path}, line {line}: {name} is {label!r} here and {before!r} in line {where}")
        else:
            repeated += id in found
            found[id] = (label, line)
    if not found:
        raise CsmlError(f"labels: none of the {len(missing)} files in {path} exists, such as {missing[0]}")
    if missing:
        notes.append(f"labels: left out, because these files in {path} do not exist: {some(missing, _SHOWN)}")
    if repeated:
        notes.append(f"labels: {repeated} lines in {path} repeat another line")
    return {id: label for id, (label, _) in found.items()}


def _with_some_held_out(
    labeled: Images, holdout: float | None, seed: int, notes: list[str]
) -> tuple[Images, Images | None]:
    """Images to train on, and images to test on if some are held out."""
    count, classes = len(labeled), len(labeled.classes)
    share = _default_holdout(count, classes) if holdout is None else holdout
    kept, held = hold_out(labeled.labels, classes, share, seed)
    if len(held):
        notes.append(f"labels: {len(held)} of them are held out for testing (--holdout {share:g})")
        return Subset(labeled, kept), Subset(labeled, held)
    if holdout is None and not share:
        notes.append(
            f"labels: all {count} are used for training, because there are few; cross-validation estimates the "
            f"accuracy (--holdout {HELD_OUT:g} keeps some for a test)"
        )
    elif not share:
        notes.append(f"labels: all {count} are used for training, none is held out for testing (--holdout 0)")
    else:
        notes.append("labels: too few to hold some out, so there is no test; testing needs two labels of a class")
    return labeled, None


def _default_holdout(labels: int, classes: int) -> float:
    """No test images if there are few labels: each is worth more for training."""
    few = labels < _FEW or (1 - HELD_OUT) * labels < _FEW_PER_CLASS * classes
    return 0.0 if few else HELD_OUT


def _named(images: Images, val: Images | None, path: Path, notes: list[str]) -> Images:
    wanted = read_list(path, "list")
    names = Names(images)
    found = {name: names.find(name) for name in dict.fromkeys(wanted)}
    ids = sorted({id for id in found.values() if id is not None})
    absent = [name for name, id in found.items() if id is None]
    tests = Names(val) if val is not None and absent else None
    tested = {name for name in absent if tests is not None and tests.find(name) is not None}
    missing = [name for name in absent if name not in tested]
    if tested:
        notes.append(
            f"list: {len(tested)} images in {path} are test images, not used for training: {some(tested, _SHOWN)}"
        )
    if not ids:
        raise CsmlError(
            f"list: none of the {len(found)} images in {path} is among the training images: {some(found, _SHOWN)}"
        )
    if missing:
        notes.append(f"list: {len(missing)} images in {path} do not exist: {some(missing, _SHOWN)}")
    notes.append(f"{path}: {len(ids):,} of {len(images):,} images keep their label")
    return Subset(images, np.array(ids))


def labels_of_run(data: DataSplits, labels: Path, tests: Path, classes: tuple[str, ...]) -> LabeledData:
    """The images that a run trained and tested on, read from the two CSV files it wrote; `tests` need not exist."""
    splits = [split for split in (data.train, data.labeled, data.val) if split is not None]
    names = [Names(split) for split in splits]

    def read(file: Path) -> Images | None:
        if not file.exists():
            return None
        found: dict[int, list[tuple[int, int]]] = {}
        for _, name, label in read_table(file):
            ids = ((number, known.find(name)) for number, known in enumerate(names))
            number, id = next(((number, id) for number, id in ids if id is not None), (None, None))
            if number is None or id is None or label not in classes:
                raise CsmlError(f"{file}: {name} ({label}) is not in the data any more")
            found.setdefault(number, []).append((id, classes.index(label)))
        subsets = [
            Subset(splits[i], np.array([id for id, _ in rows]), np.array([label for _, label in rows]), classes)
            for i, rows in found.items()
        ]
        return subsets[0] if len(subsets) == 1 else ConcatImages(subsets)

    train, val = read(labels), read(tests)
    if train is None:
        raise CsmlError(f"{labels.parent} is not a run of csml finetune: it has no {labels.name}")
    return LabeledData(data.train, train, val, _unlabeled(data.train, train, val))


def _check_classes(train: Images, val: Images | None, notes: list[str]) -> None:
    if len(np.unique(train.labels)) < 2:
        only = train.classes[int(train.labels[0])] if len(train) else "none"
        raise CsmlError(f"labels: a classifier needs at least two classes, found {only}")
    counts = np.bincount(train.labels, minlength=len(train.classes))
    if (counts > 1).any() and (counts == 1).any():
        single = [train.classes[label] for label in np.flatnonzero(counts == 1)]
        notes.append(f"labels: only one of {some(single, _SHOWN)}; estimates of the accuracy leave these classes out")
    by_spelling: dict[str, str] = {}
    for name in train.classes:
        if (other := by_spelling.setdefault(name.casefold(), name)) != name:
            notes.append(f"labels: {other!r} and {name!r} are two classes; if they are one, spell them alike")
    tested = np.bincount(val.labels, minlength=len(train.classes)) if val is not None else np.zeros_like(counts)
    for label in np.flatnonzero(counts == 0):
        rest = f"its {tested[label]} test images count as wrong" if tested[label] else "it is never predicted"
        notes.append(f"labels: the class {train.classes[label]!r} has no training image; {rest}")


def write_labels(path: Path, images: Images) -> None:
    """Write path and label of every image, as `read_table` reads it."""
    rows = ((images.name(id), images.classes[label]) for id, label in enumerate(images.labels.tolist()))
    write_csv(path, [("path", "label"), *rows])
