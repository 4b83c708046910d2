"""Checks annotations against the images: repairs what it can, skips the rest, and records both."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from pycocotools import mask as rle

from csml.data.decode import Decodable, DecodeError, Picture
from csml.data.images import ListedImages
from csml.data.scenes.annotations import Annotations, Objects, Rle, Scenes
from csml.data.scenes.raw_annotations import RawObject, RawScene, Repairs
from csml.errors import CsmlError
from csml.progress import watched

_SMALLEST = 1.0
"""Minimum side of a box, in pixels."""
_SAME_SHAPE = 0.02
"""Maximum relative difference of the aspect ratios at which an image counts as a scaled copy."""


class AnnotatedFiles(ListedImages):
    """Image files; those in `as_stored` are read without the EXIF rotation, because their annotations ignore it."""

    def __init__(self, paths: Sequence[Path], root: Path, as_stored: frozenset[int]) -> None:
        super().__init__(paths)
        self.root, self.as_stored = root, as_stored

    def name(self, id: int) -> str:
        path = self.paths[id]
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)

    def open(self, id: int) -> Decodable:
        return Picture(self.path(id), upright=id not in self.as_stored)


def assemble(
    found: Sequence[RawScene],
    root: Path,
    categories: Mapping[str, int],
    repairs: Repairs,
    truth: Path | None = None,
) -> Scenes:
    """Check every scene against the header of its image and collect the usable ones.

    Args:
        found: the raw annotations.
        root: the folder of the data set.
        categories: the classes to learn and their ids; objects of other classes are left out.
        repairs: collects the problems.
        truth: the COCO file to score against, if there is one.
    """
    labels = {name: label for label, name in enumerate(categories)}
    paths: list[Path] = []
    ids: list[int | str] = []
    sizes: list[tuple[int, int]] = []
    objects: list[Objects] = []
    as_stored: set[int] = set()
    for scene in watched(found, "checking images", total=len(found)):
        name = scene.path.name
        try:
            picture = Picture(scene.path)
        except DecodeError as error:
            missing = not scene.path.exists()
            kind = "image missing, skipped" if missing else "image cannot be read, skipped"
            repairs.add(kind, name, "" if missing else str(error.__cause__ or error))
            continue
        size = (picture.height, picture.width)
        found_objects = scene.objects
        if scene.size is not None and scene.size != size:
            detail = f"stated {scene.size[1]} × {scene.size[0]}, is {picture.width} × {picture.height}"
            scale = _common_scale(scene.size, size)
            if scene.size == picture.stored_size():
                as_stored.add(len(paths))
                size = scene.size
                repairs.add("stated size ignores the EXIF rotation, image read without it", name, detail)
            elif scale is not None:
                found_objects = [_scaled(one, scale) for one in found_objects]
                repairs.add("image was resized, its objects are scaled", name, detail)
            else:
                repairs.add("stated size is wrong, the size of the image is used", name, detail)
        picture.close()
        objects.append(usable_objects(found_objects, size, name, labels, repairs))
        paths.append(scene.path)
        ids.append(scene.id)
        sizes.append(size)
    if not paths:
        first = f" ({repairs.rows[0][0]}: {repairs.rows[0][1]})" if repairs.rows else ""
        raise CsmlError(f"data: no annotated image in {root} can be used{first}")
    images = AnnotatedFiles(paths, root, frozenset(as_stored))
    packed = Annotations.pack(sizes, objects)
    return Scenes(images, packed, tuple(categories), tuple(ids), tuple(categories.values()), truth)


def _common_scale(stated: tuple[int, int], size: tuple[int, int]) -> float | None:
    """The factor by which an image was resized after annotation; None if its aspect ratio differs."""
    if min(stated) < 1:
        return None
    tall, wide = size[0] / stated[0], size[1] / stated[1]
    return (tall + wide) / 2 if abs(tall / wide - 1) < _SAME_SHAPE else None


def _scaled(one: RawObject, scale: float) -> RawObject:
    """The object with scaled box and polygons; a run-length code is unchanged."""
    box = None if one.box is None else tuple(scale * value for value in one.box)
    segmentation = one.segmentation
    if isinstance(segmentation, list):
        segmentation = [_scaled_polygon(polygon, scale) for polygon in segmentation]
    return replace(one, box=box, segmentation=segmentation)  # type: ignore[arg-type]


def _scaled_polygon(polygon: Any, scale: float) -> Any:
    """A scaled list of numbers; anything else is unchanged, because `compressed` refuses it with a reason."""
    try:
        return [scale * float(value) for value in polygon]
    except (TypeError, ValueError, OverflowError):
        return polygon


def unannotated(paths: Sequence[Path]) -> tuple[Scenes | None, list[str]]:
    """Image files without annotations as scenes, and the paths of those that cannot be read."""
    try:
        scenes = assemble([RawScene(path, str(path), None, []) for path in paths], Path("/"), {}, Repairs())
    except CsmlError:
        return None, [str(path) for path in paths]
    good = set(scenes.image_ids)
    return scenes, [str(path) for path in paths if str(path) not in good]


def usable_objects(
    found: list[RawObject], size: tuple[int, int], name: str, labels: Mapping[str, int], repairs: Repairs
) -> Objects:
    """The usable objects of the image `name` of `size` (height, width), with boxes clipped to it."""
    kept: list[tuple[np.ndarray, RawObject, Rle | None]] = []
    for unknown in sorted({one.name for one in found if one.name not in labels}):
        repairs.add(f"class {unknown} is not in the training set, its objects are left out", name)
    for one in (one for one in found if one.name in labels):
        mask = _mask(one, size, name, repairs)
        box = one.box
        if box is None and mask is not None:
            x, y, w, h = rle.toBbox(mask).tolist()
            box = (x, y, x + w, y + h)
        if box is None or not np.isfinite(box).all():
            repairs.add("object without a box, skipped", name)
            continue
        clipped = _clipped(box, size, name, repairs)
        if clipped is not None:
            kept.append((clipped, one, mask))
    return Objects(
        boxes=np.array([box for box, _, _ in kept], dtype=np.float32).reshape(-1, 4),
        labels=np.array([labels[one.name] for _, one, _ in kept], dtype=np.int64),
        crowd=np.array([one.crowd for _, one, _ in kept], dtype=bool),
        difficult=np.array([one.difficult for _, one, _ in kept], dtype=bool),
        masks=[mask for _, _, mask in kept],
    )


def _clipped(
    box: tuple[float, float, float, float], size: tuple[int, int], name: str, repairs: Repairs
) -> np.ndarray | None:
    stated = ", ".join(f"{value:g}" for value in box)
    x0, x1, y0, y1 = *sorted((box[0], box[2])), *sorted((box[1], box[3]))
    if (x0, y0, x1, y1) != tuple(box):
        repairs.add("box with swapped corners, corrected", name, stated)
    cut = np.clip([x0, y0, x1, y1], 0, [size[1], size[0]] * 2)
    width, height = cut[2:] - cut[:2]
    if width < _SMALLEST or height < _SMALLEST:
        repairs.add("box without area, skipped", name, stated)
        return None
    if (np.abs(cut - [x0, y0, x1, y1]) > 1).any():  # one pixel may be rounding, or a file that counts from 0
        repairs.add("box past the border, clipped", name, stated)
    return cut


def _mask(one: RawObject, size: tuple[int, int], name: str, repairs: Repairs) -> Rle | None:
    if not one.segmentation:
        return None
    try:
        return compressed(one.segmentation, size)
    except (ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
        repairs.add("mask cannot be used, left out", name, str(error))
        return None


def compressed(segmentation: Any, size: tuple[int, int]) -> Rle:
    """Convert polygons or a run-length code to pycocotools' form.

    Raises ValueError, TypeError, KeyError or IndexError for input on which pycocotools would crash.
    """
    height, width = size
    if isinstance(segmentation, dict):
        if tuple(segmentation["size"]) != size:
            raise ValueError(f"is that of an image of {segmentation['size'][1]} × {segmentation['size'][0]}")
        counts = segmentation["counts"]
        counts = counts.encode() if isinstance(counts, str) else counts
        runs = run_lengths(counts) if isinstance(counts, bytes) else counts
        if min(runs, default=-1) < 0 or sum(runs) != height * width:  # pycocotools would read out of bounds
            raise ValueError("has runs that do not add up to the image")
        mask: Rle = rle.frPyObjects({"size": list(size), "counts": runs}, height, width)
    else:
        polygons = [[float(value) for value in p] for p in segmentation if len(p) >= 6 and len(p) % 2 == 0]
        if not polygons:
            raise ValueError("has no polygon of three corners")
        if not all(np.isfinite(p).all() and np.abs(p).max() <= 4 * max(size) for p in polygons):
            raise ValueError("has a corner far outside of the image")  # pycocotools would allocate too much memory
        mask = rle.merge(rle.frPyObjects(polygons, height, width))
    if rle.area(mask) == 0:
        raise ValueError("covers no pixel")
    return mask


def run_lengths(counts: bytes) -> list[int]:
    """The run lengths in COCO's compressed code: five bits per byte; from the fourth on, each is stored as the
    difference to the second to last."""
    runs: list[int] = []
    value, shift = 0, 0
    for byte in counts:
        bits = byte - 48
        value |= (bits & 0x1F) << shift
        shift += 5
        if not bits & 0x20:  # last byte of this number
            if bits & 0x10:
                value -= 1 << shift
            runs.append(value + (runs[-2] if len(runs) > 2 else 0))
            value, shift = 0, 0
    return runs
