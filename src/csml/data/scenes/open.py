"""Opens the value of `--data` for detection: training and test scenes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from csml.config import ScenesConfig
from csml.data.images import Subset
from csml.data.scenes.annotations import Scenes
from csml.data.scenes.coco import is_coco, read_coco
from csml.data.scenes.repair import Repairs
from csml.data.scenes.synthetic import synthetic_scenes
from csml.data.scenes.voc import is_voc, read_voc
from csml.errors import CsmlError


@dataclass(frozen=True)
class SceneSplits:
    """Training and test scenes of a detector."""

    train: Scenes
    test: Scenes
    format: str
    """voc, coco or synthetic"""
    notes: tuple[str, ...]
    """how the data was read, for the log"""
    repairs: Repairs
    """problems in the annotations of both splits"""


def open_scenes(
    data: str,
    config: ScenesConfig,
    format: str = "auto",
    train_names: Sequence[str] = (),
    test_names: Sequence[str] = (),
) -> SceneSplits:
    """Open `data`: a folder in VOC's or COCO's layout, or `synthetic`.

    Args:
        data: the folder, or `synthetic`.
        config: sizes and counts.
        format: voc, coco, or auto to detect it.
        train_names, test_names: VOC's lists or COCO's files of each split; if empty, the usual ones.
    """
    repairs = (Repairs(), Repairs())
    if data == "synthetic":
        format = "synthetic"
        train, test = synthetic_scenes(config.synthetic_size, config.synthetic_train, config.synthetic_val)
    else:
        root = Path(data).expanduser().absolute()
        if not root.is_dir():
            raise CsmlError(f"data: there is no folder {root}; give one with annotations in VOC's or COCO's format")
        format = _recognise(root) if format == "auto" else format
        read = read_voc if format == "voc" else read_coco
        train, test = read(root, train_names, test_names, repairs)
    usable = train if config.keep_empty else _with_objects(train)
    notes = [f"{name}: {_description(scenes)}" for name, scenes in (("train", usable), ("test", test))]
    if len(usable) < len(train):
        notes[0] += f"; {len(train) - len(usable):,} images without objects are left out"
    return SceneSplits(usable, test, format, tuple(notes), Repairs(repairs[0].rows + repairs[1].rows))


def _recognise(root: Path) -> str:
    found = [name for name, matches in (("voc", is_voc(root)), ("coco", is_coco(root))) if matches]
    if len(found) != 1:
        what = "both VOC's and COCO's layout" if found else "neither VOC's nor COCO's layout"
        raise CsmlError(
            f"format: {root} has {what}; give --format voc or coco (ImageSets/Main/*.txt, "
            "or annotations/instances_train*.json)"
        )
    return found[0]


def _with_objects(scenes: Scenes) -> Scenes:
    ids = np.flatnonzero(scenes.annotations.count_learnable())
    if not len(ids):
        raise CsmlError("data: no training image has an object")
    return scenes if len(ids) == len(scenes) else subset(scenes, ids)


def subset(scenes: Scenes, ids: np.ndarray) -> Scenes:
    """The scenes with the given ids, renumbered from 0."""
    names = tuple(scenes.image_ids[id] for id in ids)
    images, annotations = Subset(scenes.images, ids), scenes.annotations.subset(ids)
    return Scenes(images, annotations, scenes.classes, names, scenes.category_ids, scenes.truth)


def _description(scenes: Scenes) -> str:
    objects = int(scenes.annotations.count_learnable().sum())
    masks = ", with masks" if scenes.annotations.have_masks() else ""
    return f"{len(scenes):,} images, {objects:,} objects of {len(scenes.classes)} classes{masks}"
