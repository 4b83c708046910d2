"""Data sets of Hugging Face `datasets`: in memory, on disk (save_to_disk, Parquet, Arrow), or on the hub."""

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from csml.config import HUB
from csml.data.bit_depth import Reading
from csml.data.images import UNLABELED, FileImages, fingerprint_ids
from csml.data.layout import TRAIN_FOLDERS, VAL_FOLDERS, numbers_of, text_labels
from csml.errors import CsmlError, reason
from csml.extras import extra
from csml.files import cache_dir, cache_key

_LABEL_COLUMNS = ("label", "labels", "class", "category", "fine_label")
_LABEL_KINDS = ("string", "large_string", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))
_FILES = (".parquet", ".arrow")


def is_dataset(data: Any) -> bool:
    """Whether an object comes from the package `datasets`; does not import it."""
    return type(data).__module__.partition(".")[0] == "datasets"


def is_saved(path: Path) -> bool:
    """Whether a path was written by `save_to_disk`, or is a Parquet or Arrow file."""
    if path.is_dir():
        return any((path / file).is_file() for file in ("dataset_dict.json", "state.json"))
    return path.suffix.lower() in _FILES and path.is_file()


def load(source: str) -> Any:
    """The Dataset or DatasetDict at a path, or of `hf:NAME` on the hub."""
    with extra("datasets", f"data {source}"):
        import datasets
    path, cache = Path(source).expanduser(), str(cache_dir() / "huggingface")
    try:
        datasets.disable_progress_bars()
        if source.startswith(HUB):
            return datasets.load_dataset(source.removeprefix(HUB), cache_dir=cache)
        if path.is_dir():
            return datasets.load_from_disk(str(path))
        if path.suffix.lower() == ".arrow":
            return datasets.Dataset.from_file(str(path))
        return datasets.Dataset.from_parquet(str(path), cache_dir=cache)
    except Exception as error:  # the package and its dependencies raise all kinds of exceptions
        raise CsmlError(f"data: {source} cannot be read with datasets ({reason(error)})") from error


def open_dataset(dataset: Any, reading: Reading, place: str) -> dict[str, "HubImages"]:
    """The splits `train` and, if there is one, `val` of a Dataset or DatasetDict."""
    if not isinstance(dataset, Mapping):
        return {"train": HubImages(dataset, reading, place)}
    names = list(dataset)
    train = next((name for name in (*TRAIN_FOLDERS, *names) if name in names), None)
    if train is None:
        raise CsmlError(f"data: {place} has no splits")
    found = {"train": HubImages(dataset[train], reading, f"{place}/{train}")}
    val = next((name for name in VAL_FOLDERS if name in names and name != train), None)
    if val is not None and found["train"].classes:
        found["val"] = HubImages(dataset[val], reading, f"{place}/{val}", found["train"].classes)
    return found


class HubImages(FileImages):
    """A Dataset with a column of images, read as files; a column of classes gives the labels.

    Args:
        dataset: with random access.
        reading: channels and depth.
        place: prefix of the image names.
        classes: those of the training set, for a validation set.
    """

    def __init__(self, dataset: Any, reading: Reading, place: str, classes: tuple[str, ...] | None = None) -> None:
        with extra("datasets", "a data set of Hugging Face"):
            import datasets
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "column_names"):
            raise CsmlError(f"data: a {type(dataset).__name__} has no random access; load it without streaming")
        if not len(dataset):
            raise CsmlError(f"data: {place} is empty")
        images = [name for name, kind in dataset.features.items() if isinstance(kind, datasets.Image)]
        if not images:
            raise CsmlError(f"data: {place} has no column of images; its columns are {', '.join(dataset.column_names)}")
        self.reading, self.place, self.column = reading, place, images[0]
        plain = dataset.with_format(None)
        self.labels, self.classes = _labels(plain, datasets.ClassLabel, datasets.Value, classes, place)
        self.dataset = plain.select_columns(self.column).cast_column(self.column, datasets.Image(decode=False))

    def __len__(self) -> int:
        return len(self.dataset)

    def name(self, id: int) -> str:
        return f"{self.place}/{id}"

    def fingerprint(self) -> str:
        content = [_content(self.source(id)) for id in fingerprint_ids(self)]
        return cache_key(len(self), self.labels.tobytes(), self.classes, *content)

    def source(self, id: int) -> Path | BytesIO:
        item = self.dataset[id][self.column] or {}
        if item.get("bytes") is not None:
            return BytesIO(item["bytes"])
        return Path(item["path"]) if item.get("path") else BytesIO()


def _labels(
    dataset: Any, class_label: type[Any], single_value: type[Any], classes: tuple[str, ...] | None, place: str
) -> tuple[np.ndarray, tuple[str, ...]]:
    features = dataset.features
    classed = [name for name, kind in features.items() if isinstance(kind, class_label)]
    single = {name: kind.dtype for name, kind in features.items() if isinstance(kind, single_value)}
    named = [name for name in _LABEL_COLUMNS if single.get(name) in _LABEL_KINDS]
    if not classed and not named:
        return np.full(len(dataset), UNLABELED, np.int64), ()
    column = (classed or named)[0]
    values = list(dataset[column])
    if not classed:
        return text_labels([None if value is None else str(value) for value in values], classes, place)
    names = tuple(features[column].names)
    known = names if classes is None else classes
    places = np.append(numbers_of(names, known, place), UNLABELED)  # the last entry is for −1 and no label
    return places[[UNLABELED if value is None else value for value in values]], known


def _content(source: Path | BytesIO) -> bytes:
    try:
        return source.getvalue() if isinstance(source, BytesIO) else source.read_bytes()
    except OSError:
        return b""
