"""Labels as people have them: class folders, a table that names a few files, a list of names, a fraction of a class."""

import csv
import difflib
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from csml.data.images import UNLABELED, FolderImages, Images, Subset, source_of
from csml.data.joined import Joined
from csml.data.open import DataSplits, hold_out
from csml.errors import CsmlError, some

_PATH_COLUMNS = ("path", "file", "filename", "image", "name")
_LABEL_COLUMNS = ("label", "class", "category")
_SHOWN = 3
"""Names that a message tells of many."""


@dataclass(frozen=True)
class LabeledData:
    """What is known about the images of a run."""

    images: Images
    """all that may be seen without labels"""
    train: Images
    """the labelled images to learn from"""
    val: Images | None
    """labelled images to test on, of the same classes"""
    unlabeled: np.ndarray
    """ids, in `images`, that carry no label here and are no test images"""
    notes: tuple[str, ...] = ()
    """how the labels were understood, and what is odd about them; for the log"""


def choose_labels(
    data: DataSplits, table: str | None, names: str | None, fraction: float | None, holdout: float, seed: int
) -> LabeledData:
    """The labelled part of `data`.

    Args:
        data: as opened.
        table: a CSV or JSON-lines file of path and label; instead of the labels of the folders.
        names: a file of image names, one a line; only these keep their label.
        fraction: of each class, at least one image, keeps its label.
        holdout: share of the table's labels that tests, where the data has no labelled test images.
        seed: of the choice by fraction and of the held-out share.
    """
    notes: list[str] = []
    if table is not None:
        train, val = _from_table(data, Path(table).expanduser(), holdout, seed, notes)
    elif data.labeled is not None and data.val is not None:
        train, val = data.labeled, data.val
    else:
        raise CsmlError("data: there are no labels; give class folders, or --labels FILE with path and label of some")
    if names is not None:
        train = _named(train, val, Path(names).expanduser(), notes)
    if fraction is not None:
        chosen = stratified(train.labels, fraction, seed)
        notes.append(f"fraction {fraction:g}: {len(chosen):,} of {len(train):,} labels, seed {seed}")
        train = Subset(train, chosen)
    _look_over(train, val, notes)
    return LabeledData(data.train, train, val, _unlabeled(data.train, train, val), tuple(notes))


def _unlabeled(images: Images, train: Images, val: Images | None) -> np.ndarray:
    known = [ids_in(images, part) for part in (train, val) if part is not None]
    return np.setdiff1d(np.arange(len(images)), np.concatenate(known))


def stratified(labels: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """Ids of a share of each class, rounded, at least one; sorted. The same seed always chooses the same."""
    rng = np.random.default_rng(seed)
    chosen = []
    for label in np.unique(labels[labels != UNLABELED]):
        members = np.flatnonzero(labels == label)
        count = max(1, round(fraction * len(members)))
        chosen.append(rng.permutation(members)[:count])
    return np.sort(np.concatenate(chosen)) if chosen else np.empty(0, np.int64)


def ids_in(images: Images, part: Images) -> np.ndarray:
    """Ids in `images` of those that `part` was taken from, through any number of subsets; empty if from elsewhere."""
    if isinstance(part, Joined):
        return np.concatenate([ids_in(images, inner) for inner in part.parts])
    ids = np.arange(len(part))
    while part is not images:
        if not isinstance(part, Subset):
            return np.empty(0, np.int64)
        ids, part = part.ids[ids], part.images
    return ids


def read_table(path: Path) -> list[tuple[int, str, str]]:
    """Line, path and label of every row of a CSV (with or without a header) or of JSON lines."""
    try:
        text = path.read_text("utf-8-sig", errors="surrogateescape")
    except (OSError, UnicodeDecodeError) as error:
        raise CsmlError(f"labels: {path} cannot be read ({getattr(error, 'strerror', None) or error})") from error
    rows = list(_json_rows(path, text) if path.suffix in (".jsonl", ".ndjson", ".json") else _csv_rows(path, text))
    if not rows:
        raise CsmlError(f"labels: {path} names no image; each line is path,label")
    for line, name, label in rows:
        if not name or not label:
            raise CsmlError(f"labels: {path}, line {line}: the {'label' if name else 'path'} is empty")
    return rows


def _csv_rows(path: Path, text: str) -> Iterator[tuple[int, str, str]]:
    lines = csv.reader(io.StringIO(text, newline=""), delimiter="\t" if path.suffix == ".tsv" else ",")
    place = (0, 1)
    for number, row in enumerate(lines, 1):
        if not any(cell.strip() for cell in row):
            continue
        cells = [cell.strip() for cell in row]
        if number == 1:
            lower = [cell.lower() for cell in cells]
            path_column, label_column = _column(lower, _PATH_COLUMNS), _column(lower, _LABEL_COLUMNS)
            if path_column is not None and label_column is not None:
                place = (path_column, label_column)
                continue
        if len(cells) <= max(place):
            raise CsmlError(f"labels: {path}, line {number}: expected path,label, found {','.join(row)!r}")
        yield number, cells[place[0]], cells[place[1]]


def _column(header: list[str], names: tuple[str, ...]) -> int | None:
    return next((header.index(name) for name in names if name in header), None)


def _json_rows(path: Path, text: str) -> Iterator[tuple[int, str, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            yield number, str(row["path"]), str(row["label"])
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            wanted = '{"path": "a.jpg", "label": "cat"}'
            raise CsmlError(f"labels: {path}, line {number}: expected {wanted}, found {line[:60]!r}") from error


class Names:
    """Ids by relative path, by a path that leads through the folder, or by file name where it is unique."""

    def __init__(self, images: Images) -> None:
        self.by_path = {images.name(id): id for id in range(len(images))}
        self.by_file: dict[str, int | None] = {}
        for path, id in self.by_path.items():
            file = path.rsplit("/", 1)[-1]
            self.by_file[file] = None if file in self.by_file else id
        self.root = _root(images)

    def find(self, name: str) -> int | None:
        name = name.removeprefix("./").replace("\\", "/")
        if name in self.by_path:
            return self.by_path[name]
        parts = tuple(name.split("/"))
        for length in range(1, min(len(parts), len(self.root) + 1)):  # photos/a.jpg, /home/me/photos/a.jpg
            if parts[:length] == self.root[-length:]:
                return self.by_path.get("/".join(parts[length:]))
        return self.by_file.get(name) if len(parts) == 1 else None


def _root(images: Images) -> tuple[str, ...]:
    """The folder the images lie in, as the parts of its path: ("", "home", "me", "photos")."""
    source = source_of(images)
    return tuple(str(source.index.root).split("/")) if isinstance(source, FolderImages) else ()


def _from_table(
    data: DataSplits, path: Path, holdout: float, seed: int, notes: list[str]
) -> tuple[Images, Images | None]:
    names, known, rows = Names(data.train), data.train.classes, read_table(path)
    if not {label for _, _, label in rows} & set(known):
        known = ()  # the folders are years, or cameras: not what the table tells apart
    chosen: dict[int, tuple[str, int]] = {}
    strangers, repeated = [], 0
    for line, name, label in rows:
        id = names.find(name)
        if known and label not in known:
            close = difflib.get_close_matches(label, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"the folders are {', '.join(known[:_SHOWN])}, …"
            raise CsmlError(f"labels: {path}, line {line}: the class {label!r} is none of the folders; {hint}")
        if id is None:
            strangers.append(name)
        elif id in chosen and chosen[id][0] != label:
            before, where = chosen[id]
            raise CsmlError(f"labels: {path}, line {line}: {name} is {label!r} here and {before!r} in line {where}")
        else:
            repeated += id in chosen
            chosen[id] = (label, line)
    if not chosen:
        raise CsmlError(f"labels: none of the {len(strangers)} files in {path} is there, such as {strangers[0]}")
    if strangers:
        notes.append(f"labels: {len(strangers)} files of {path} are not there: {some(strangers, _SHOWN)}")
    if repeated:
        notes.append(f"labels: {repeated} lines of {path} repeat another")
    classes = known or tuple(sorted({label for label, _ in chosen.values()}))
    ids = np.array(sorted(chosen))
    labels = np.array([classes.index(chosen[id][0]) for id in ids.tolist()])
    notes.append(f"{path}: {len(ids):,} labels of {len(classes)} classes")
    labeled = Subset(data.train, ids, labels, classes)
    if known and data.val is not None:
        tested = np.isin(ids, ids_in(data.train, data.val))
        if tested.any():
            notes.append(f"labels: {tested.sum()} of them are of images that test, and are not learnt from")
        return Subset(labeled, np.flatnonzero(~tested)), data.val
    kept, held = hold_out(labels, len(classes), holdout, seed)
    if not len(held):
        notes.append("labels: too few to hold some out, so nothing is tested; more than one of a class would allow it")
        return labeled, None
    notes.append(f"labels: {len(held)} of them are held out to test on (--holdout {holdout:g})")
    return Subset(labeled, kept), Subset(labeled, held)


def _named(images: Images, val: Images | None, path: Path, notes: list[str]) -> Images:
    try:
        wanted = [
            line.strip() for line in path.read_text("utf-8-sig", errors="surrogateescape").splitlines() if line.strip()
        ]
    except (OSError, UnicodeDecodeError) as error:
        raise CsmlError(f"list: {path} cannot be read ({getattr(error, 'strerror', None) or error})") from error
    names = Names(images)
    found = {name: names.find(name) for name in dict.fromkeys(wanted)}
    ids = sorted({id for id in found.values() if id is not None})
    absent = [name for name, id in found.items() if id is None]
    tests = Names(val) if val is not None and absent else None
    tested = {name for name in absent if tests is not None and tests.find(name) is not None}
    missing = [name for name in absent if name not in tested]
    if tested:
        notes.append(f"list: {len(tested)} images of {path} test, and are not learnt from: {some(tested, _SHOWN)}")
    if not ids:
        raise CsmlError(
            f"list: none of the {len(found)} images that {path} names is there to learn from: {some(found, _SHOWN)}"
        )
    if missing:
        notes.append(f"list: {len(missing)} images of {path} are not there: {some(missing, _SHOWN)}")
    notes.append(f"{path}: {len(ids):,} of {len(images):,} images keep their label")
    return Subset(images, np.array(ids))


def labels_of_run(data: DataSplits, run: Path, classes: tuple[str, ...]) -> LabeledData:
    """What a fine-tuned run learnt from and tested on, as it wrote it down: labels.csv and tests.csv."""
    places = [part for part in (data.train, data.labeled, data.val) if part is not None]
    names = [Names(part) for part in places]

    def read(file: str) -> Images | None:
        if not (run / file).exists():
            return None
        found: dict[int, list[tuple[int, int]]] = {}
        for _, name, label in read_table(run / file):
            ids = ((place, known.find(name)) for place, known in enumerate(names))
            place, id = next(((place, id) for place, id in ids if id is not None), (None, None))
            if place is None or id is None or label not in classes:
                raise CsmlError(f"{run / file}: {name} ({label}) is not in the data any more")
            found.setdefault(place, []).append((id, classes.index(label)))
        parts = [
            Subset(places[i], np.array([id for id, _ in rows]), np.array([label for _, label in rows]), classes)
            for i, rows in found.items()
        ]
        return parts[0] if len(parts) == 1 else Joined(parts)

    train, val = read("labels.csv"), read("tests.csv")
    if train is None:
        raise CsmlError(f"{run} is no run of csml finetune: it has no labels.csv")
    return LabeledData(data.train, train, val, _unlabeled(data.train, train, val))


def _look_over(train: Images, val: Images | None, notes: list[str]) -> None:
    if len(np.unique(train.labels)) < 2:
        only = train.classes[int(train.labels[0])] if len(train) else "none"
        raise CsmlError(f"labels: at least two classes are needed to tell them apart, found {only}")
    counts = np.bincount(train.labels, minlength=len(train.classes))
    tested = np.bincount(val.labels, minlength=len(train.classes)) if val is not None else np.zeros_like(counts)
    for label in np.flatnonzero(counts == 0):
        rest = f"its {tested[label]} test images count as wrong" if tested[label] else "it is never predicted"
        notes.append(f"labels: the class {train.classes[label]!r} has no image to learn from; {rest}")
