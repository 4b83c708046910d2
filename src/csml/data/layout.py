"""Splits and classes from paths: which images are for training and which for testing, and the class of each."""

from collections.abc import Iterable, Sequence

import numpy as np

from csml.config import ImagesConfig
from csml.data.images import UNLABELED, Images, Subset
from csml.errors import CsmlError

TRAIN_FOLDERS = ("train", "training")
VAL_FOLDERS = ("val", "valid", "validation", "test")
"""In order of preference: if there are several, the first is the test set of the protocols."""


def arrange(
    images: Images, paths: Sequence[str], config: ImagesConfig, place: object, texts: Sequence[str | None] | None = None
) -> dict[str, Images]:
    """The splits `train` and, if there is one, `val` of a collection of images with paths.

    Args:
        images: N images.
        paths: N paths with forward slashes; leading folders common to all are ignored.
        config: whether folders are classes.
        place: where the images are, for messages.
        texts: class names given with the images, None for an image without; by default the names of the folders.
    """
    paths = _without_common_folder(paths)
    parts = split_parts([path.partition("/")[0] if "/" in path else "" for path in paths])
    if parts is None:
        return {"train": _labeled(images, np.arange(len(images)), paths, config, place, texts, None)}
    inner = _without_common_folder([path.partition("/")[2] for path in paths])
    train = _labeled(images, parts["train"], inner, config, f"{place}, train", texts, None)
    if not train.classes:
        return {"train": train}
    return {"train": train, "val": _labeled(images, parts["val"], inner, config, f"{place}, val", texts, train.classes)}


def split_parts(names: Sequence[str]) -> dict[str, np.ndarray] | None:
    """Ids of the images for training and testing, if every name is one of TRAIN_FOLDERS or VAL_FOLDERS and both occur;
    else None."""
    found = set(names)
    val = next((name for name in VAL_FOLDERS if name in found), None)
    if val is None or not found & set(TRAIN_FOLDERS) or not found <= {*TRAIN_FOLDERS, *VAL_FOLDERS}:
        return None
    array = np.array(names)
    return {"train": np.flatnonzero(np.isin(array, TRAIN_FOLDERS)), "val": np.flatnonzero(array == val)}


def class_folders(paths: Iterable[bytes]) -> tuple[tuple[str, ...], np.ndarray | None]:
    """Class names and labels `(N,)` if every path is exactly `class/file`; else no names and None."""
    codes: dict[bytes, int] = {}
    found = []
    for path in paths:
        folder, slash, file = path.partition(b"/")
        if not slash or b"/" in file:
            return (), None
        found.append(codes.setdefault(folder, len(codes)))
    ordered = sorted(codes, key=lambda folder: folder + b"/")  # the order of sorted paths
    rank = np.empty(len(codes), np.int64)
    rank[[codes[folder] for folder in ordered]] = np.arange(len(codes))
    names = tuple(folder.decode("utf-8", "surrogateescape") for folder in ordered)
    return names, rank[np.array(found, np.int64)]


def folder_labels(
    paths: Iterable[bytes], config: ImagesConfig, classes: tuple[str, ...] | None, place: object
) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """Labels `(N,)` and class names by folder, or None and no names if the folders are not classes.

    Args:
        paths: `class/file` or others.
        config: whether folders are classes.
        classes: the classes of the training set, for a validation set; None for a training set.
        place: where the images are, for messages.
    """
    names, labels = class_folders(paths) if config.labels != "none" else ((), None)
    enough = 2 if classes is None else 1  # a single folder is a class only if the training set has that class
    if config.labels == "none" or (config.labels == "auto" and (labels is None or len(names) < enough)):
        return None, ()
    if labels is None:
        raise CsmlError(f"images.labels: folders needs every image in a class folder, but {place} has others")
    if classes is None:
        return labels, names
    return numbers_of(names, classes, place)[labels], classes


def text_labels(
    texts: Sequence[str | None], classes: tuple[str, ...] | None, place: object
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Labels `(N,)` of class names, UNLABELED for None; numeric names are ordered by value."""
    names = sorted(
        {text for text in texts if text is not None},
        key=lambda name: (not name.isdecimal(), int(name) if name.isdecimal() else 0, name),
    )
    known = tuple(names) if classes is None else classes
    numbers = dict(zip(names, numbers_of(names, known, place).tolist(), strict=True))
    return np.array([UNLABELED if text is None else numbers[text] for text in texts], np.int64), known


def numbers_of(names: Sequence[str], classes: tuple[str, ...], place: object) -> np.ndarray:
    """The number of each name among the classes of the training set."""
    places = {name: number for number, name in enumerate(classes)}
    unseen = sorted(set(names) - set(places))
    if unseen:
        raise CsmlError(f"data: {place} has the class {unseen[0]!r}, which the training folder does not have")
    return np.array([places[name] for name in names], np.int64)


def _labeled(
    images: Images,
    ids: np.ndarray,
    paths: Sequence[str],
    config: ImagesConfig,
    place: object,
    texts: Sequence[str | None] | None,
    classes: tuple[str, ...] | None,
) -> Images:
    labels: np.ndarray | None
    if texts is not None and config.labels != "none":
        labels, names = text_labels([texts[id] for id in ids.tolist()], classes, place)
    else:
        own = (paths[id].encode("utf-8", "surrogateescape") for id in ids.tolist())
        labels, names = folder_labels(own, config, classes, place)
    return Subset(images, ids, np.full(len(ids), UNLABELED, np.int64) if labels is None else labels, names)


def _without_common_folder(paths: Sequence[str]) -> list[str]:
    """Paths without the leading folders that are common to all."""
    rest = list(paths)
    while rest and "/" in rest[0]:
        first = rest[0].partition("/")[0] + "/"
        if first[:-1] in (*TRAIN_FOLDERS, *VAL_FOLDERS) or not all(path.startswith(first) for path in rest):
            break
        rest = [path[len(first) :] for path in rest]
    return rest
