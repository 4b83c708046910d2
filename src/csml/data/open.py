"""Opens `data`: a training set, its labelled images, and a validation set."""

from dataclasses import dataclass, replace

import numpy as np

from csml.config import ImagesConfig, split_sources
from csml.data.concat import ConcatImages
from csml.data.decode import DecodeError, Picture
from csml.data.decoded_cache import describe_cache, store_for
from csml.data.downloads import cifar10, cifar100, stl10
from csml.data.huggingface import HubImages
from csml.data.images import UNLABELED, FolderImages, Images, Subset, source_of
from csml.data.sources import open_sources
from csml.data.synthetic import synthetic
from csml.data.tars import TarImages
from csml.errors import CsmlError

IN_MEMORY = "memory"
"""Value of the setting `data` where the caller passed images instead of a path."""
_HELD_OUT = 0.2
_DOWNLOADS = {"cifar10": cifar10, "cifar100": cifar100, "stl10": stl10}


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
    """Open `data`: one or more folders, patterns, lists, tar files, Hugging Face data sets or packs, or one of NAMED.

    The train/ and val/ or test/ folders inside a folder are used as such. Of any other labelled images, a fixed fifth
    of each class is held out as the test set of the protocols; pre-training does not use labels and uses all images.
    """
    if data == IN_MEMORY:  # even if there is a folder of this name
        raise CsmlError("data: the images of this run were passed in memory; pass them again as data")
    splits = splits_to_test(_open_whole(data, config), config.test)
    splits = replace(splits, notes=(*splits.notes, *_looked_at(splits.train, config), *_decoded(splits, config)))
    if config.sample is None:
        return splits
    train = _sampled(splits.train, config.sample)
    labeled = train if splits.labeled is splits.train else splits.labeled and _sampled(splits.labeled, config.sample)
    note = f"images.sample: {len(train):,} of {len(splits.train):,} images"
    return replace(splits, train=train, labeled=labeled, notes=(*splits.notes, note))


def _open_whole(data: str, config: ImagesConfig) -> DataSplits:
    if data == "synthetic":
        size = config.synthetic_size or config.size
        return splits_of(*synthetic(size, config.synthetic_train, config.synthetic_val))
    if data in _DOWNLOADS:
        train, val = _DOWNLOADS[data]()
        return splits_of(train, val)
    splits, notes = open_sources(split_sources(data), config)
    return splits_of(splits["train"], splits.get("val"), tuple(notes))


def _looked_at(images: Images, config: ImagesConfig) -> tuple[str, ...]:
    """Notes from reading the first file; raises CsmlError before thousands of files fail for the same reason."""
    if images.channels != config.channels:
        raise CsmlError(f"images.channels: the images have {images.channels} channels, not {config.channels}")
    source = source_of(images)
    source = source_of(source.members[0]) if isinstance(source, ConcatImages) else source
    if not isinstance(source, FolderImages | TarImages | HubImages):  # a remote pack is downloaded on demand
        return ()
    try:
        picture = source.open(0)
        if config.channels not in (1, 3) or not isinstance(picture, Picture):
            picture.bands()
    except DecodeError as error:
        text = str(error.__cause__ or error)
        if "channels" in text or "pip install" in text:
            raise CsmlError(f"data: {source.name(0)}: {text}") from error
        return ()
    if not picture.deep:
        return ()
    if config.sixteen_bit == "percentile":
        return ("16 bits become 8: each channel of an image from its 0.5 to its 99.5 percentile",)
    return ("16 bits become 8: 65 535 becomes 255 (for dark images: --images.sixteen_bit percentile)",)


def _decoded(splits: DataSplits, config: ImagesConfig) -> tuple[str, ...]:
    """A note about the cache of decoded images, after making room for these.

    All folders get the cache or none does, because each alone may fit into `images.cache_gb` when all together do not.
    """
    everything = [images for images in (splits.train, splits.labeled, splits.val) if images is not None]
    folders = list(dict.fromkeys(folder for images in everything for folder in _folders(images)))
    if not folders:
        return ()
    count = sum(map(len, folders))
    for folder in folders:
        folder.decoded = store_for(config, count)
    line = describe_cache(config, count, (folder.path(id) for folder in folders for id in range(len(folder))))
    return (line,) if line else ()


def _folders(images: Images) -> list[FolderImages]:
    """The image files, in folders or lists, among the data sets that these images come from."""
    source = source_of(images)
    if isinstance(source, ConcatImages):
        return [folder for member in source.members for folder in _folders(member)]
    return [source] if isinstance(source, FolderImages) else []


def splits_of(train: Images, val: Images | None = None, notes: tuple[str, ...] = ()) -> DataSplits:
    """Training images and, if they have labels, the images on which the protocols train and test."""
    labeled = _with_labels(train)
    if val is None or not train.classes:
        return DataSplits(train, *_hold_out(labeled, seed=0), notes)
    if not val.classes:
        note = "the test images have no labels, so a fifth of the training images is used for testing"
        return DataSplits(train, *_hold_out(labeled, seed=0), (*notes, note))
    return DataSplits(train, labeled, _with_labels(val), notes)


def splits_to_test(splits: DataSplits, test: str) -> DataSplits:
    """The splits to evaluate on: unchanged for `test`; for `validation`, a fifth of the labelled training images
    replaces the test images and is removed from the other splits."""
    if test == "test":
        return splits
    kept, held = _hold_out(splits.labeled, seed=1) if splits.labeled is not None else (None, None)
    if kept is None or held is None:
        raise CsmlError("images.test: validation images are cut from labelled ones, and there are none")
    train = splits.train
    known = splits.labeled.ids if isinstance(splits.labeled, Subset) and splits.labeled is not train else None
    left_out = held.ids if known is None else known[held.ids]
    rest = Subset(train, np.setdiff1d(np.arange(len(train)), left_out))
    note = f"images.test: {len(held):,} training images are for validation; the test images stay unseen"
    return DataSplits(rest, kept if known is not None else rest, held, (*splits.notes, note))


def _with_labels(images: Images) -> Images:
    known = np.flatnonzero(images.labels != UNLABELED)
    return images if len(known) == len(images) else Subset(images, known)


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


def _hold_out(images: Images, seed: int) -> tuple[Subset | None, Subset | None]:
    """Split labelled images into training and test images: a fixed fifth of each class is for testing."""
    if not images.classes:
        return None, None
    kept, held = hold_out(images.labels, len(images.classes), _HELD_OUT, seed)
    return (Subset(images, kept), Subset(images, held)) if len(held) else (None, None)


def hold_out(labels: np.ndarray, classes: int, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Split ids into kept and held-out: a share of each class, at least one image unless the class has only one."""
    by_class = _shuffled_by_class(labels, seed)
    counts = np.bincount(labels, minlength=classes)
    wanted = np.where((counts > 1) & (share > 0), np.clip(np.round(share * counts), 1, counts - 1), 0)
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)  # position within the class
    held = np.zeros(len(labels), bool)
    held[by_class] = rank < np.repeat(wanted, counts)
    return np.flatnonzero(~held), np.flatnonzero(held)
