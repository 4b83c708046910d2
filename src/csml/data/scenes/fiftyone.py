"""FiftyOne's own exports: samples.json with data/ (FiftyOneDataset), and labels.json with classes and labels by image.

Its COCO, YOLO and VOC exports are read as COCO, YOLO and VOC.
"""

import base64
import io
import json
import zlib
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from csml.data.decode import DecodeError, Picture
from csml.data.scenes.annotations import encode_masks
from csml.data.scenes.coco import LARGEST
from csml.data.scenes.folder import Folder, role_of
from csml.data.scenes.raw_annotations import Part, RawAnnotations, RawObject, RawScene, Repairs
from csml.errors import CsmlError
from csml.files import read_file
from csml.progress import watched

_SAMPLES, _LABELS = "samples.json", "labels.json"
_UNNAMED = "object"


def is_fiftyone(folder: Folder) -> bool:
    return bool(_files(folder))


def fiftyone_parts(folder: Folder) -> list[Part]:
    """The samples by their tags train, validation and test, or by the folder that the file is in."""
    parts = []
    for file in _files(folder):
        by_role: dict[str | None, list[dict[str, Any]]] = defaultdict(list)
        for sample in _samples(file):
            tags = [role for tag in sample.get("tags") or [] if (role := role_of(str(tag)))]
            by_role[tags[0] if tags else folder.role(file)].append(sample)
        parts += [
            Part(role or folder.relative(file), role, partial(_read, folder, file, samples))
            for role, samples in by_role.items()
        ]
    return parts


def _files(folder: Folder) -> list[Path]:
    return [file for file in folder.with_suffix(".json") if _is_export(file)]


def _is_export(file: Path) -> bool:
    if file.name not in (_SAMPLES, _LABELS):
        return False
    with file.open("rb") as opened:
        start = opened.read(65_536)
    return b'"samples"' in start if file.name == _SAMPLES else b'"labels"' in start and b'"images"' not in start


def _samples(file: Path) -> list[dict[str, Any]]:
    """Samples as FiftyOneDataset writes them; labels.json is converted to the same form."""
    try:
        content = json.loads(read_file(file, LARGEST))
        if file.name == _SAMPLES:
            return [sample for sample in content["samples"] if isinstance(sample, dict)]
        classes = content.get("classes")
        return [
            {"filepath": name, "objects": {"detections": [_named(one, classes) for one in found or []]}}
            for name, found in content["labels"].items()
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CsmlError(f"data: {file} cannot be read as an export of FiftyOne ({error})") from error


def _named(one: dict[str, Any], classes: list[str] | None) -> dict[str, Any]:
    label = one.get("label")
    return {**one, "label": classes[label]} if classes and isinstance(label, int) else one


def _read(folder: Folder, file: Path, samples: list[dict[str, Any]], repairs: Repairs) -> RawAnnotations:
    scenes = []
    for sample in watched(samples, "reading annotations", total=len(samples)):
        stated = Path(str(sample.get("filepath", "")).replace("\\", "/"))
        image = file.parent / stated
        if stated.is_absolute() or ".." in stated.parts or not image.exists():
            image = folder.image(file, stem=stated.stem if stated.suffix else stated.name) or file.parent / stated.name
        try:
            picture = Picture(image)
        except DecodeError:
            scenes.append(RawScene(image, stated.stem, None, []))
            continue
        size = (picture.height, picture.width)
        picture.close()
        found = [_object(one, size, image.name, repairs) for one in _detections(sample)]
        scenes.append(RawScene(image, stated.stem, size, [one for one in found if one is not None]))
    return RawAnnotations(scenes, {})


def _detections(sample: dict[str, Any]) -> list[dict[str, Any]]:
    """The objects of the first field that has any; ground_truth comes first."""
    fields = sorted(sample, key=lambda key: key != "ground_truth")
    lists = (sample[key].get("detections") for key in fields if isinstance(sample[key], dict))
    return next((found for found in lists if isinstance(found, list)), [])


def _object(one: dict[str, Any], size: tuple[int, int], name: str, repairs: Repairs) -> RawObject | None:
    """An object whose box is x, y, width and height relative to the image, and whose mask, if any, fills the box."""
    height, width = size
    try:
        x, y, w, h = (float(value) for value in one["bounding_box"])
    except (KeyError, TypeError, ValueError):
        repairs.add("object without a box, skipped", name)
        return None
    box = (x * width, y * height, (x + w) * width, (y + h) * height)
    mask = None
    if one.get("mask") is not None:
        try:
            mask = _placed(_decoded(one["mask"]), box, size)
        except (ValueError, TypeError, KeyError, zlib.error, EOFError) as error:
            repairs.add("mask cannot be used, left out", name, str(error))
    crowd = bool(one.get("iscrowd", False))
    return RawObject(str(one.get("label") or _UNNAMED), box, crowd, segmentation=mask)


def _decoded(stated: Any) -> np.ndarray:
    """A mask as FiftyOne stores it: a compressed .npy file in base64; bool `(h, w)`."""
    text = stated["$binary"]["base64"] if isinstance(stated, dict) else stated
    array: np.ndarray = np.load(io.BytesIO(zlib.decompress(base64.b64decode(text))), allow_pickle=False)
    if array.ndim != 2 or not array.size:
        raise ValueError(f"is of shape {array.shape}")
    return array > 0


def _placed(mask: np.ndarray, box: tuple[float, float, float, float], size: tuple[int, int]) -> dict[str, Any]:
    """The mask of the whole image: the mask of the box, resized and placed in it."""
    left, top = round(box[0]), round(box[1])
    right, bottom = max(left + 1, round(box[2])), max(top + 1, round(box[3]))
    rows = (np.arange(bottom - top) * mask.shape[0] // (bottom - top)).astype(np.int64)
    columns = (np.arange(right - left) * mask.shape[1] // (right - left)).astype(np.int64)
    whole = np.zeros(size, bool)
    y0, x0, y1, x1 = max(0, top), max(0, left), min(size[0], bottom), min(size[1], right)
    whole[y0:y1, x0:x1] = mask[rows][:, columns][y0 - top : y1 - top, x0 - left : x1 - left]
    return encode_masks(whole[None])[0]
