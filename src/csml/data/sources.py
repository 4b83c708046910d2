"""Opens the sources of images in `data`: each becomes a training set and possibly a test set."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from csml.config import HUB, ImagesConfig
from csml.data.bit_depth import reading_of
from csml.data.concat import ConcatImages
from csml.data.folder_index import describe_left_out
from csml.data.folders import folder_notes, open_folders
from csml.data.huggingface import is_saved, load, open_dataset
from csml.data.images import UNLABELED, Images, Subset
from csml.data.layout import numbers_of
from csml.data.lists import LISTS, open_list, open_matches
from csml.data.patterns import expand, fixed_part, is_pattern
from csml.data.shards import is_tar, open_shards
from csml.errors import CsmlError


def is_pack(data: str) -> bool:
    """Whether `data` is a pack made by `csml pack`: a local folder, or any URL."""
    return "://" in data or (Path(data).expanduser() / "pack.json").exists()


def open_sources(sources: Sequence[str], config: ImagesConfig) -> tuple[dict[str, Images], list[str]]:
    """Open one source, or several as one: all training images together, and all test images."""
    opened = [_open_source(source, config) for source in sources]
    if len(opened) == 1:
        return opened[0]
    trains = {source: splits["train"] for source, (splits, _) in zip(sources, opened, strict=True)}
    tests = {
        source: splits["val"]
        for source, (splits, _) in zip(sources, opened, strict=True)
        if "val" in splits and splits["val"].classes
    }
    joined = {"train": _joined(trains, None)}
    if tests:
        joined["val"] = _joined(tests, joined["train"].classes)
    return joined, [note for _, notes in opened for note in notes]


def _open_source(source: str, config: ImagesConfig) -> tuple[dict[str, Images], list[str]]:
    """The splits `train` and, if there is one, `val` of one source, and notes on how it was read."""
    if is_pack(source):
        return _open_pack(source, config)
    path = Path(source).expanduser()
    if source.startswith(HUB) or is_saved(path):
        found = _without_labels(open_dataset(load(source), reading_of(config), source.removeprefix(HUB)), config)
        return found, _descriptions(source, found, "label")
    if is_pattern(source):
        return _open_pattern(source, config)
    if is_tar(path):
        return _open_shards((path,), source, config)
    if path.is_file() and path.suffix.lower() in LISTS:
        splits, notes = open_list(path, config)
        return splits, _descriptions(source, splits, "label or folder") + notes
    folders = open_folders(path, config)
    notes = [_description(images.index.root, images, "folder") for images in folders.values()]
    return dict(folders), notes + folder_notes(path, folders)


def _open_pattern(source: str, config: ImagesConfig) -> tuple[dict[str, Images], list[str]]:
    found = expand(source)
    folders = [path for path in found if path.is_dir()]
    archives = [path for path in found if is_tar(path)]
    files = [path for path in found if path not in set(folders) | set(archives)] if len(found) > len(archives) else []
    if archives and not folders and not files:
        return _open_shards(tuple(archives), source, config)
    if archives:
        raise CsmlError(f"data: {source} matches tar files and other things; give a pattern for each, with a comma")
    if files:  # "**" matches folders too; the files in them are matched by themselves
        splits, notes = open_matches(fixed_part(source), files, config)
        return splits, _descriptions(source, splits, "folder") + notes
    return open_sources([str(path) for path in folders], config)


def _open_shards(archives: tuple[Path, ...], source: str, config: ImagesConfig) -> tuple[dict[str, Images], list[str]]:
    splits, others = open_shards(archives, config, source)
    line = describe_left_out(others)
    return splits, _descriptions(source, splits, "label or folder") + ([line] if line else [])


def _open_pack(data: str, config: ImagesConfig) -> tuple[dict[str, Images], list[str]]:
    from csml.data.packed import Pack, PackedImages  # here: pyarrow is not needed for folders

    pack = Pack(data)
    unlabeled, reading = config.labels == "none", reading_of(config)
    splits: dict[str, Images] = {split: PackedImages(pack, split, unlabeled, reading) for split in pack.index["parts"]}
    return splits, [_description(f"{data}, {split}", images, "folder") for split, images in splits.items()]


def _joined(members: Mapping[str, Images], classes: tuple[str, ...] | None) -> Images:
    """Several training (or test) sets as one, with the classes of all; names are prefixed with the source."""
    everyone = {name for images in members.values() for name in images.classes}
    known = tuple(sorted(everyone)) if classes is None else classes
    relabeled = []
    for source, images in members.items():
        places = np.append(numbers_of(images.classes, known, source), UNLABELED)  # the last entry is for −1, no label
        relabeled.append(Subset(images, np.arange(len(images)), places[images.labels], known))
    return ConcatImages(relabeled, [f"{source.rstrip('/')}/" for source in members])


def _without_labels(splits: Mapping[str, Images], config: ImagesConfig) -> dict[str, Images]:
    """The same images, without labels if `images.labels` is none."""
    if config.labels != "none":
        return dict(splits)
    train = splits["train"]
    return {"train": Subset(train, np.arange(len(train)), np.full(len(train), UNLABELED), ())}


def _descriptions(source: str, splits: dict[str, Images], by: str) -> list[str]:
    places = [source] if len(splits) == 1 else [f"{source}, {split}" for split in splits]
    return [_description(place, images, by) for place, images in zip(places, splits.values(), strict=True)]


def _description(place: object, images: Images, by: str) -> str:
    if not images.classes:
        return f"{place}: {len(images):,} images, no labels"
    return (
        f"{place}: {len(images):,} images, {len(images.classes)} classes by {by} (if the {by}s are not classes: "
        "--images.labels none)"
    )
