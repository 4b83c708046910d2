"""Opens `--data` for detection, in any supported layout: training and test scenes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from csml.config import ScenesConfig
from csml.data.images import Subset
from csml.data.scenes.annotations import Scenes
from csml.data.scenes.coco import coco_parts, is_coco
from csml.data.scenes.fiftyone import fiftyone_parts, is_fiftyone
from csml.data.scenes.folder import Folder
from csml.data.scenes.masks import is_masks, mask_parts
from csml.data.scenes.raw_annotations import Part, RawAnnotations, RawScene, Repairs
from csml.data.scenes.repair import assemble
from csml.data.scenes.splitting import chosen_parts, copies, repeated, stratified
from csml.data.scenes.synthetic import synthetic_scenes
from csml.data.scenes.voc import is_voc, voc_parts
from csml.data.scenes.yolo import is_yolo, yolo_parts
from csml.errors import CsmlError, did_you_mean, some

_FORMATS: dict[str, tuple[Callable[[Folder], bool], Callable[[Folder], list[Part]]]] = {
    "voc": (is_voc, voc_parts),
    "coco": (is_coco, coco_parts),
    "yolo": (is_yolo, yolo_parts),
    "fiftyone": (is_fiftyone, fiftyone_parts),
    "masks": (is_masks, mask_parts),
}
"""Whether a folder has a format, and its parts. Masks come last: if there are boxes too, the boxes are used."""
DEFAULT_SPLIT = 0.2


@dataclass(frozen=True)
class SceneSplits:
    """Training and test scenes of a detector."""

    train: Scenes
    test: Scenes
    format: str
    """voc, coco, yolo, fiftyone, masks or synthetic"""
    notes: tuple[str, ...]
    """how the data was read, for the log"""
    warnings: tuple[str, ...]
    """probable mistakes in the data"""
    repairs: Repairs
    """problems in the annotations of both splits"""


def open_scenes(
    data: str,
    config: ScenesConfig,
    format: str = "auto",
    train_names: Sequence[str] = (),
    test_names: Sequence[str] = (),
    split: float | None = None,
) -> SceneSplits:
    """Open `data`: a folder with annotations in any known layout, or `synthetic`.

    Args:
        data: the folder, or `synthetic`.
        config: sizes and counts.
        format: one of the formats, or auto to detect it.
        train_names, test_names: parts of the data to use: VOC's lists, COCO's files, or train, val and test.
        split: share of all annotated images to test on; None: the data's own test part, or a fifth if it has none.
    """
    if data == "synthetic":
        train, test = synthetic_scenes(config.synthetic_size, config.synthetic_train, config.synthetic_val)
        return _described(train, test, config, "synthetic", [], Repairs())
    root, format, parts = _opened(data, format)
    repairs = Repairs()
    if split is not None and not (train_names or test_names):
        found = _read([part for part in parts if part.role] or parts, repairs)
        training, testing = found, None
        notes = [f"format {format}; {split:g} of all annotated images are drawn to test on"]
    else:
        chosen = chosen_parts(parts, train_names, test_names, root)
        training = _read(chosen[0], repairs)
        testing = _read(chosen[1], repairs) if chosen[1] else None
        notes = [f"format {format}; train: {_titles(chosen[0])}; test: {_titles(chosen[1]) or 'drawn from it'}"]
        if others := [part.name for part in parts if part.role and part not in chosen[0] + chosen[1]]:
            notes[0] += f"; not used: {some(others)}"
    categories = training.categories or _numbered(training.scenes, root, repairs)
    train = assemble(training.scenes, root, categories, repairs, training.truth)
    if testing is None:
        share = DEFAULT_SPLIT if split is None else split
        ids = stratified(train.annotations, share, config.split_seed, copies(train))
        train, test = subset(train, ids[0]), subset(train, ids[1])
    else:
        same = all(categories.get(name, id) == id for name, id in testing.categories.items())
        test = assemble(testing.scenes, root, categories, repairs, testing.truth if same else None)
    return _described(train, test, config, format, notes, repairs)


def open_annotated(
    data: str, classes: Sequence[str], format: str = "auto", names: Sequence[str] = ()
) -> tuple[Scenes, str, Repairs]:
    """All annotated images of a folder, or those of some parts, for a detector that knows `classes`; their format."""
    root, format, parts = _opened(data, format)
    repairs = Repairs()
    chosen = chosen_parts(parts, names, names, root)[1] if names else [part for part in parts if part.role] or parts
    found = _read(chosen, repairs)
    stated = {one.name for scene in found.scenes for one in scene.objects}
    if not stated & set(classes):
        raise CsmlError(
            f"data: {root} has {some(sorted(stated))}, and the detector knows {some(classes)}: none of them"
        )
    ids = {name: found.categories.get(name, 0) for name in classes}
    own = len({*ids.values()}) == len(ids) and 0 not in ids.values()
    categories = ids if own else {name: number for number, name in enumerate(classes, start=1)}
    return assemble(found.scenes, root, categories, repairs, found.truth if own else None), format, repairs


def _opened(data: str, format: str) -> tuple[Path, str, list[Part]]:
    """The folder, its format (detected if `auto`), and its parts."""
    root = Path(data).expanduser().absolute()
    if not root.is_dir():
        expected = "give one with images and their annotations"
        raise CsmlError(f"data: there is no folder {root}{did_you_mean(root, expected)}")
    folder = Folder(root)
    format = _recognise(folder) if format == "auto" else format
    parts = _FORMATS[format][1](folder)
    if not parts:
        raise CsmlError(f"format: {root} has no annotations in the format {format}; {_contents(folder)}")
    return root, format, parts


def _described(
    train: Scenes, test: Scenes, config: ScenesConfig, format: str, notes: list[str], repairs: Repairs
) -> SceneSplits:
    usable = train if config.keep_empty else _with_objects(train)
    lines = [f"{name}: {_description(scenes)}" for name, scenes in (("train", usable), ("test", test))]
    if len(usable) < len(train):
        lines[0] += f"; {len(train) - len(usable):,} images without objects are left out"
    warnings = []
    if same := repeated(usable, test):
        warnings.append(
            f"{len(same)} of {len(test)} test images are also training images, so scores are too high: {some(same)}"
        )
    return SceneSplits(usable, test, format, (*notes, *lines), tuple(warnings), repairs)


def _recognise(folder: Folder) -> str:
    found = [name for name, (matches, _) in _FORMATS.items() if matches(folder)]
    if len(found) > 1 and found[-1] == "masks":
        found.pop()
    if len(found) == 1:
        return found[0]
    if found:
        raise CsmlError(f"format: {folder.root} has annotations of several formats; give --format {' or '.join(found)}")
    raise CsmlError(
        f"format: no annotations were recognised in {folder.root} ({_contents(folder)}); csml reads VOC's XML, COCO's "
        "JSON, YOLO's text files, masks, and FiftyOne's export"
    )


def _contents(folder: Folder) -> str:
    counts = {f"{len(folder.images):,} images": len(folder.images)}
    for suffix in (".xml", ".json", ".txt", ".csv", ".zip"):
        if number := len(folder.with_suffix(suffix)):
            counts[f"{number:,} {suffix} files"] = number
    return "it holds " + ", ".join(counts)


def _read(parts: Sequence[Part], repairs: Repairs) -> RawAnnotations:
    """The annotations of all parts, with every image once; image ids are prefixed with the year or name of the part."""
    found = [part.read(repairs) for part in parts]
    if len(found) == 1:
        return found[0]
    scenes: dict[Path, RawScene] = {}
    for part, each in zip(parts, found, strict=True):
        place = Path(part.name).parent.as_posix()
        for scene in each.scenes:
            id = f"{part.name if place == '.' else place}/{scene.id}"
            scenes.setdefault(scene.path, replace(scene, id=id))
    ids = {name: id for each in reversed(found) for name, id in each.categories.items()}
    if len(set(ids.values())) < len(ids):  # the parts number their classes differently
        ids = {name: number for number, name in enumerate(sorted(ids), start=1)}
    return RawAnnotations(list(scenes.values()), ids)


def _numbered(scenes: Sequence[RawScene], root: Path, repairs: Repairs) -> dict[str, int]:
    names = sorted({one.name for scene in scenes for one in scene.objects})
    if not names:
        why = f" ({repairs.rows[0][0]}: {repairs.rows[0][1]})" if repairs.rows else ""
        raise CsmlError(f"data: the {len(scenes)} annotation files to train on in {root} name no object{why}")
    return {name: number for number, name in enumerate(names, start=1)}


def _titles(parts: Sequence[Part]) -> str:
    return some([part.name for part in parts])


def _with_objects(scenes: Scenes) -> Scenes:
    ids = np.flatnonzero(scenes.annotations.count_learnable())
    if not len(ids):
        raise CsmlError("data: no training image has an object that can be used")
    return scenes if len(ids) == len(scenes) else subset(scenes, ids)


def subset(scenes: Scenes, ids: np.ndarray) -> Scenes:
    """The scenes with the given ids, renumbered from 0."""
    names = tuple(scenes.image_ids[id] for id in ids)
    images, annotations = Subset(scenes.images, ids), scenes.annotations.subset(ids)
    return Scenes(images, annotations, scenes.classes, names, scenes.category_ids, scenes.truth)


def _description(scenes: Scenes) -> str:
    objects = int(scenes.annotations.count_learnable().sum())
    masks = ", with masks" if scenes.annotations.have_masks() else ""
    classes = "1 class" if len(scenes.classes) == 1 else f"{len(scenes.classes)} classes"
    return f"{len(scenes):,} images, {objects:,} objects of {classes}{masks}"
