"""Opens the value of `--data`: a training set, its labelled images, and a validation set."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from csml.config import NAMED, ImagesConfig
from csml.data.downloads import cifar10, cifar100, stl10
from csml.data.images import UNLABELED, FolderImages, Images, Subset
from csml.data.index import FolderIndex, index_folder
from csml.data.synthetic import synthetic
from csml.errors import CsmlError

_TRAIN_FOLDERS = ("train", "training")
_VAL_FOLDERS = ("val", "valid", "validation", "test")
_HELD_OUT = 0.2


@dataclass(frozen=True)
class DataSplits:
    """The images of a run."""

    train: Images
    """for pre-training, which does not use labels"""
    labeled: Images | None
    """labelled training images of the protocols (kNN, linear, …)"""
    val: Images | None
    """labelled test images of the protocols"""
    notes: tuple[str, ...] = ()
    """how the data was read, for the log"""


def open_data(data: str, config: ImagesConfig) -> DataSplits:
    """Open `data`: a folder, a pack, or one of NAMED.

    The train/ and val/ folders inside a folder are used as such. Of any other labelled folder, a fixed fifth of each
    class is held out as the test set of the protocols; pre-training, which does not use labels, uses all images.
    """
    splits = _open_whole(data, config)
    if config.sample is None:
        return splits
    train = _sampled(splits.train, config.sample)
    labeled = train if splits.labeled is splits.train else splits.labeled and _sampled(splits.labeled, config.sample)
    note = f"images.sample: {len(train):,} of {len(splits.train):,} images"
    return replace(splits, train=train, labeled=labeled, notes=(*splits.notes, note))


def _open_whole(data: str, config: ImagesConfig) -> DataSplits:
    if data == "synthetic":
        size = config.synthetic_size or config.size
        train, val = synthetic(size, config.synthetic_train, config.synthetic_val)
        return DataSplits(train, train, val)
    if data == "stl10":
        train, val = stl10()
        return DataSplits(train, Subset(train, np.flatnonzero(train.labels != UNLABELED)), val)
    if data in ("cifar10", "cifar100"):
        train, val = cifar10() if data == "cifar10" else cifar100()
        return DataSplits(train, train, val)
    if is_pack(data):
        return _open_pack(data, config)
    root = Path(data).expanduser()
    splits = open_folders(root, config)
    notes = tuple(_description(images.index.root, images) for images in splits.values())
    return splits_of(splits["train"], splits.get("val"), notes)


def is_pack(data: str) -> bool:
    """Whether `data` is a pack made by `csml pack`: a local folder, or any URL."""
    return "://" in data or (Path(data).expanduser() / "pack.json").exists()


def open_folders(root: Path, config: ImagesConfig) -> dict[str, FolderImages]:
    """The splits `train` and, if there is one, `val`: subfolders of `root`, or the whole folder as `train`."""
    if not root.exists():
        raise CsmlError(f"data: there is no folder {root}; give a folder of images or one of {', '.join(NAMED)}")
    if not root.is_dir():
        raise CsmlError(f"data: {root} is a file; give the folder that holds the images")
    train_root, val_root = _split_folders(root)
    train = folder_images(train_root, config, classes=None)
    if val_root is None or not train.classes:
        return {"train": train}
    return {"train": train, "val": folder_images(val_root, config, classes=train.classes)}


def _open_pack(data: str, config: ImagesConfig) -> DataSplits:
    from csml.data.packed import Pack, PackedImages  # here: pyarrow is not needed for folders

    pack = Pack(data)
    unlabeled = config.labels == "none"
    splits = {split: PackedImages(pack, split, unlabeled=unlabeled) for split in pack.index["parts"]}
    notes = tuple(_description(f"{data}, {split}", images) for split, images in splits.items())
    return splits_of(splits["train"], splits.get("val"), notes)


def splits_of(train: Images, val: Images | None = None, notes: tuple[str, ...] = ()) -> DataSplits:
    """Training images and, if they have labels, the images on which the protocols train and test."""
    if val is None or not train.classes:
        return DataSplits(train, *_hold_out(train), notes)
    if not val.classes:
        note = "the test images have no labels, so a fifth of the training images is used for testing"
        return DataSplits(train, *_hold_out(train), (*notes, note))
    return DataSplits(train, train, val, notes)


def _description(place: object, images: Images) -> str:
    if not images.classes:
        return f"{place}: {len(images):,} images, no labels"
    return (
        f"{place}: {len(images):,} images, {len(images.classes)} classes by folder (if the folders are not classes: "
        "--images.labels none)"
    )


def _split_folders(root: Path) -> tuple[Path, Path | None]:
    """The folders train/ and val/ in `root`, or `root` itself. Without val/, a "train" among others is a class."""
    train, val = _first_folder(root, _TRAIN_FOLDERS), _first_folder(root, _VAL_FOLDERS)
    others = [path for path in root.iterdir() if path.is_dir() and path not in (train, val) and path.name[0] != "."]
    if train is None or (val is None and others):
        return root, None
    return train, val


def _first_folder(root: Path, names: tuple[str, ...]) -> Path | None:
    return next((root / name for name in names if (root / name).is_dir()), None)


def folder_images(root: Path, config: ImagesConfig, classes: tuple[str, ...] | None) -> FolderImages:
    """All images below `root`, labelled by their class folders.

    Args:
        root: the folder.
        config: whether folders are classes.
        classes: the classes of the training set, for a validation set; None for a training set.
    """
    index = index_folder(root)
    if len(index) == 0:
        raise CsmlError(f"data: no image below {root}; expected .jpg, .png, .webp, .bmp, .gif, .tif or .ppm files")
    names, labels = _labels_from_folders(index)
    enough = 2 if classes is None else 1  # a single folder is a class only if the training set has that class
    if config.labels == "none" or (config.labels == "auto" and (labels is None or len(names) < enough)):
        return FolderImages(index)
    if labels is None:
        raise CsmlError(f"images.labels: folders needs every image in a class folder, but {root} has others")
    if classes is not None:
        unseen = sorted(set(names) - set(classes))
        if unseen:
            raise CsmlError(f"data: {root} has the class {unseen[0]!r}, which the training folder does not have")
        labels = np.array([classes.index(name) for name in names], dtype=np.int64)[labels]
        names = classes
    return FolderImages(index, labels, names)


def _labels_from_folders(index: FolderIndex) -> tuple[tuple[str, ...], np.ndarray | None]:
    """Class names and labels `(N,)` if every path is exactly `class/file`; else no names and None."""
    slashes = np.flatnonzero(np.asarray(index.buffer) == ord("/"))
    owner = np.searchsorted(index.offsets, slashes, side="right") - 1  # the path that each slash belongs to
    if not np.array_equal(owner, np.arange(len(index))):
        return (), None
    # Paths are sorted, so the paths of a class are consecutive: a new class starts where the folder changes.
    names: list[str] = []
    labels = np.empty(len(index), dtype=np.int64)
    buffer = np.asarray(index.buffer).tobytes()
    previous = None
    for row, (start, end) in enumerate(zip(index.offsets[:-1].tolist(), slashes.tolist(), strict=True)):
        folder = buffer[start:end]
        if folder != previous:
            names.append(folder.decode("utf-8", "surrogateescape"))
            previous = folder
        labels[row] = len(names) - 1
    return tuple(names), labels


def _sampled(images: Images, count: int) -> Images:
    """A fixed random sample of `count` images, stratified by class; all images if there are no more."""
    if count >= len(images):
        return images
    by_class = _shuffled_by_class(images.labels, seed=0)
    return Subset(images, np.sort(by_class[np.arange(count) * len(images) // count]))


def _shuffled_by_class(labels: np.ndarray, seed: int) -> np.ndarray:
    """All ids, sorted by class, in random order within each class."""
    order = np.random.default_rng(seed).permutation(len(labels))
    return order[np.argsort(labels[order], kind="stable")]


def _hold_out(images: Images) -> tuple[Images | None, Images | None]:
    """Split labelled images into training and test images: a fixed fifth of each class is for testing."""
    if not images.classes:
        return None, None
    kept, held = hold_out(images.labels, len(images.classes), _HELD_OUT, seed=0)
    return (Subset(images, kept), Subset(images, held)) if len(held) else (None, None)


def hold_out(labels: np.ndarray, classes: int, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Split ids into kept and held-out: a share of each class, at least one image unless the class has only one."""
    by_class = _shuffled_by_class(labels, seed)
    counts = np.bincount(labels, minlength=classes)
    wanted = np.where((counts > 1) & (share > 0), np.clip(np.round(share * counts), 1, counts - 1), 0)
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)  # place within the class
    held = np.zeros(len(labels), bool)
    held[by_class] = rank < np.repeat(wanted, counts)
    return np.flatnonzero(~held), np.flatnonzero(held)
