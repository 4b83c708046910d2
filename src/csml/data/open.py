"""One `--data` value to a training and a validation set."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from csml.config.schema import NAMED, ImagesConfig
from csml.data.downloads import cifar10, cifar100, stl10
from csml.data.drawn import synthetic
from csml.data.images import UNLABELED, FolderImages, Images, Subset
from csml.data.index import FolderIndex, index_folder
from csml.errors import CsmlError

_TRAIN_FOLDERS = ("train", "training")
_VAL_FOLDERS = ("val", "valid", "validation", "test")
_HELD_OUT = 0.2


@dataclass(frozen=True)
class DataSplits:
    """`train` is what pre-training sees; `labeled` and `val` are what the protocols train and test on."""

    train: Images
    labeled: Images | None
    val: Images | None
    notes: tuple[str, ...] = ()
    """How the data was understood, for the log."""


def open_data(data: str, config: ImagesConfig) -> DataSplits:
    """Open `data`: a folder, or one of NAMED.

    A folder with train/ and val/ inside is taken as such; of any other labelled folder a fixed fifth of each class is
    held out when a protocol needs a test set (pre-training, which sees no labels, uses all of it).
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
    parts = open_folders(root, config)
    notes = tuple(_understood(images.index.root, images) for images in parts.values())
    return _splits(parts["train"], parts.get("val"), notes)


def is_pack(data: str) -> bool:
    """Whether `data` is what `csml pack` made, or an address, which can be nothing else."""
    return "://" in data or (Path(data).expanduser() / "pack.json").exists()


def open_folders(root: Path, config: ImagesConfig) -> dict[str, FolderImages]:
    """`train`, and `val` if there is one: of a folder with such inside, or all of it."""
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
    blind = config.labels == "none"
    parts = {part: PackedImages(pack, part, unlabeled=blind) for part in pack.index["parts"]}
    notes = tuple(_understood(f"{data}, {part}", images) for part, images in parts.items())
    return _splits(parts["train"], parts.get("val"), notes)


def _splits(train: Images, val: Images | None, notes: tuple[str, ...]) -> DataSplits:
    if val is None or not train.classes:
        return DataSplits(train, *_hold_out(train), notes)
    if not val.classes:
        told = (*notes[:1], f"{notes[1]}, so a fifth of the training images tests")
        return DataSplits(train, *_hold_out(train), told)
    return DataSplits(train, train, val, notes)


def _understood(place: object, images: Images) -> str:
    if not images.classes:
        return f"{place}: {len(images):,} images, no labels"
    return (
        f"{place}: {len(images):,} images, {len(images.classes)} classes by folder (if they are none: "
        "--images.labels none)"
    )


def _split_folders(root: Path) -> tuple[Path, Path | None]:
    """train/ and val/ inside `root`, or all of it. A lone "train" among other folders is a class: locomotives."""
    train, val = _first_folder(root, _TRAIN_FOLDERS), _first_folder(root, _VAL_FOLDERS)
    others = [path for path in root.iterdir() if path.is_dir() and path not in (train, val) and path.name[0] != "."]
    if train is None or (val is None and others):
        return root, None
    return train, val


def _first_folder(root: Path, names: tuple[str, ...]) -> Path | None:
    return next((root / name for name in names if (root / name).is_dir()), None)


def folder_images(root: Path, config: ImagesConfig, classes: tuple[str, ...] | None) -> FolderImages:
    """All images below `root` with the labels of its class folders."""
    index = index_folder(root)
    if len(index) == 0:
        raise CsmlError(
            f"data: no image below {root}; .jpg, .png, .webp, .bmp, .gif, .tif and .ppm files are looked for"
        )
    names, labels = _labels_from_folders(index)
    enough = 2 if classes is None else 1  # one folder alone says nothing, unless the training folder has its like
    if config.labels == "none" or (config.labels == "auto" and (labels is None or len(names) < enough)):
        return FolderImages(index)
    if labels is None:
        raise CsmlError(f"images.labels: folders needs every image in a class folder, but {root} has some beside them")
    if classes is not None:
        unseen = sorted(set(names) - set(classes))
        if unseen:
            raise CsmlError(f"data: {root} has the class {unseen[0]!r}, which the training folder does not have")
        labels = np.array([classes.index(name) for name in names], dtype=np.int64)[labels]
        names = classes
    return FolderImages(index, labels, names)


def _labels_from_folders(index: FolderIndex) -> tuple[tuple[str, ...], np.ndarray | None]:
    """Class names and labels `(N,)` if every path is exactly `class/file`, else no labels."""
    slashes = np.flatnonzero(np.asarray(index.buffer) == ord("/"))
    owner = np.searchsorted(index.offsets, slashes, side="right") - 1  # which path each slash belongs to
    if not np.array_equal(owner, np.arange(len(index))):
        return (), None
    # Paths are sorted, so a class is a run: a new one starts where the folder differs from the path before.
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
    """A fixed random `count` of the images, each class's share of them; all, if there are not more."""
    if count >= len(images):
        return images
    by_class = _shuffled_by_class(images.labels, seed=0)
    return Subset(images, np.sort(by_class[np.arange(count) * len(images) // count]))


def _shuffled_by_class(labels: np.ndarray, seed: int) -> np.ndarray:
    """All ids, class after class, in random order within each."""
    order = np.random.default_rng(seed).permutation(len(labels))
    return order[np.argsort(labels[order], kind="stable")]


def _hold_out(images: Images) -> tuple[Images | None, Images | None]:
    """A fixed fifth of each class for testing; the rest for training on labels."""
    if not images.classes:
        return None, None
    kept, held = hold_out(images.labels, len(images.classes), _HELD_OUT, seed=0)
    return (Subset(images, kept), Subset(images, held)) if len(held) else (None, None)


def hold_out(labels: np.ndarray, classes: int, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Ids to keep and to hold out: a share of each class, at least one image of it unless that is its only one."""
    by_class = _shuffled_by_class(labels, seed)
    counts = np.bincount(labels, minlength=classes)
    wanted = np.where((counts > 1) & (share > 0), np.clip(np.round(share * counts), 1, counts - 1), 0)
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)  # place within the class
    held = np.zeros(len(labels), bool)
    held[by_class] = rank < np.repeat(wanted, counts)
    return np.flatnonzero(~held), np.flatnonzero(held)
