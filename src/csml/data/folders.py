"""A folder of images: train/ and val/ or test/ inside it, and class folders inside those."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

from csml.config import NAMED, ImagesConfig
from csml.data.bit_depth import reading_of
from csml.data.decoded_cache import store_for
from csml.data.folder_index import FolderIndex, index_folder, left_out
from csml.data.images import FolderImages
from csml.data.layout import TRAIN_FOLDERS, VAL_FOLDERS, folder_labels
from csml.errors import CsmlError, did_you_mean

EXPECTED = f"give a folder of images or one of {', '.join(NAMED)}"


def open_folders(root: Path, config: ImagesConfig) -> dict[str, FolderImages]:
    """The splits `train` and, if there is one, `val`: subfolders of `root`, or the whole folder as `train`."""
    if not root.exists():
        raise CsmlError(f"data: there is no folder {root}{did_you_mean(root, EXPECTED)}")
    if not root.is_dir():
        raise CsmlError(f"data: {root} is a file; give the folder that holds the images")
    train_root, val_root = split_folders(root)
    train = folder_images(train_root, config, classes=None)
    if val_root is None or not train.classes:
        return {"train": train}
    return {"train": train, "val": folder_images(val_root, config, classes=train.classes)}


def folder_notes(root: Path, splits: dict[str, FolderImages]) -> list[str]:
    """Log lines about the folder: subfolders that are not used, and files that were left out."""
    notes = [line for images in splits.values() if (line := left_out(images.index))]
    if "val" in splits:
        used = splits["val"].index.root.name
        others = [name for name in VAL_FOLDERS if name != used and (root / name).is_dir()]
        more = f"; {', '.join(f'{name}/' for name in others)} not used" if others else ""
        notes.insert(0, f"{splits['train'].index.root.name}/ is for training, {used}/ for testing{more}")
    return notes


def folder_images(root: Path, config: ImagesConfig, classes: tuple[str, ...] | None) -> FolderImages:
    """All images below `root`, labelled by their class folders.

    Args:
        root: the folder.
        config: whether folders are classes.
        classes: the classes of the training set, for a validation set; None for a training set.
    """
    index = index_folder(root)
    if len(index) == 0:
        raise CsmlError(f"data: no image below {root}{_hint(root, index)}")
    labels, names = folder_labels(_paths(index), config, classes, root)
    return FolderImages(index, labels, names, reading_of(config), store_for(config, len(index)))


def split_folders(root: Path) -> tuple[Path, Path | None]:
    """The folders train/ and val/ in `root`, or `root` itself. Without val/, a "train" among others is a class."""
    train, val = _first_folder(root, TRAIN_FOLDERS), _first_folder(root, VAL_FOLDERS)
    others = [path for path in root.iterdir() if path.is_dir() and path not in (train, val) and path.name[0] != "."]
    if train is None or (val is None and others):
        return root, None
    return train, val


def _first_folder(root: Path, names: tuple[str, ...]) -> Path | None:
    return next((root / name for name in names if (root / name).is_dir()), None)


def _paths(index: FolderIndex) -> Iterator[bytes]:
    buffer = np.asarray(index.buffer).tobytes()
    starts = index.offsets.tolist()
    return (buffer[start:end] for start, end in pairwise(starts))


def _hint(root: Path, index: FolderIndex) -> str:
    """A hint for the error message: what the folder holds instead of images."""
    if next(root.glob("*.tar"), None) is not None:
        return f"; for the tar files in it give '{root}/*.tar'"
    found = left_out(index)
    expected = "expected .jpg, .png, .webp, .bmp, .gif, .tif or .ppm files"
    return f" ({found}); {expected}" if found else f"; {expected}"
