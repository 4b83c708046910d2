"""Objects given by masks alone: Pascal's SegmentationObject, Penn-Fudan's PedMasks, masks/ of the nuclei."""

import re
from collections import Counter, defaultdict
from functools import partial
from pathlib import Path

import numpy as np

from csml.data.decode import DecodeError
from csml.data.scenes.annotations import Rle, decode_masks
from csml.data.scenes.folder import Folder
from csml.data.scenes.instance_masks import read_instances, read_single, read_values
from csml.data.scenes.raw_annotations import Part, RawAnnotations, RawObject, RawScene, Repairs
from csml.errors import CsmlError
from csml.progress import watched

_CLASSES, _PER_IMAGE = "SegmentationClass", "masks"
_ENDINGS = re.compile(r"[-_.]?(masks?|gt|instances?|labels?|seg)$", re.IGNORECASE)
_UNNAMED = "object"
"""The class of objects that only have a mask."""
_STATED = re.compile(r'object (\d+) "([^"]+)"', re.IGNORECASE)
"""The line of a text file in the format "PASCAL Annotation Version 1.00" that names an object."""
_VOC_CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog",
    "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip
"""The classes of the values 1 to 20 in Pascal's SegmentationClass."""


def is_masks(folder: Folder) -> bool:
    return bool(folder.masks) and any(_image_of(folder, mask) is not None for mask in folder.masks[:5])


def mask_parts(folder: Folder) -> list[Part]:
    """The images that have masks, by the folder they are in: those of train/, of test/, …"""
    by_image: dict[Path, list[Path]] = defaultdict(list)
    for mask in folder.masks:
        image = None if mask.parent.name == _CLASSES else _image_of(folder, mask)
        if image is not None:
            by_image[image].append(mask)
    by_role: dict[str | None, dict[Path, list[Path]]] = defaultdict(dict)
    for image, masks in by_image.items():
        by_role[folder.role(image)][image] = masks
    return [Part(role or "all", role, partial(_read, folder, images)) for role, images in by_role.items()]


def _image_of(folder: Folder, mask: Path) -> Path | None:
    """The image that a mask file belongs to: the one in ID/images for ID/masks/ANY.png, else the one with its stem."""
    if mask.parent.name.lower() == _PER_IMAGE and (mask.parent.parent / "images").is_dir():
        beside = folder.images_in(mask.parent.parent / "images")
        if len(beside) == 1:
            return beside[0]
    stem = _ENDINGS.sub("", mask.stem)
    return folder.image(mask, stem=mask.stem) or folder.image(mask, stem=stem)


def _read(folder: Folder, masks_of: dict[Path, list[Path]], repairs: Repairs) -> RawAnnotations:
    colours = _label_map(folder, repairs)
    texts = {file.stem: file for file in folder.with_suffix(".txt")}
    scenes = []
    for image, masks in watched(masks_of.items(), "reading masks", total=len(masks_of)):
        objects: list[RawObject] = []
        for mask in masks:
            try:
                objects += _objects(mask, len(masks) > 1, colours, texts.get(image.stem))
            except DecodeError as error:
                repairs.add("mask cannot be read, left out", mask.name, str(error.__cause__ or error))
        scenes.append(RawScene(image, folder.relative(image.with_suffix("")), None, objects))
    names = [scene.path.stem for scene in scenes]
    if len(set(names)) == len(names):
        scenes = [RawScene(scene.path, scene.path.stem, scene.size, scene.objects) for scene in scenes]
    if not any(scene.objects for scene in scenes):
        raise CsmlError(f"data: the {len(masks_of)} masks below {folder.root} show no object: all pixels are 0")
    return RawAnnotations(scenes, {})


def _objects(mask: Path, alone: bool, colours: dict[int, str], text: Path | None) -> list[RawObject]:
    """The objects of a mask file.

    Args:
        mask: the file.
        alone: each object of the image has its own file.
        colours: CVAT's label map.
        text: a text file of the same stem as the image, which may name its objects.
    """
    if alone:
        code = read_single(mask)
        return [] if code is None else [RawObject(_UNNAMED, None, segmentation=code)]
    codes = read_instances(mask)
    classes = mask.parent.parent / _CLASSES / mask.name
    names = _names_from_classes(codes, classes, colours) if classes.exists() else _stated_names(text)
    return [RawObject(names.get(value, _UNNAMED), None, segmentation=code) for value, code in codes.items()]


def _names_from_classes(codes: dict[int, Rle], classes: Path, colours: dict[int, str]) -> dict[int, str]:
    """The class of each instance: the most frequent one of its pixels in the SegmentationClass file of the same
    name."""
    values = read_values(classes, colours=bool(colours))
    found = {}
    for value, mask in zip(codes, decode_masks(list(codes.values()), values.shape), strict=True):
        (most, _), *_ = Counter(values[mask.astype(bool)].tolist()).most_common(1)
        default = _VOC_CLASSES[most - 1] if 0 < most <= len(_VOC_CLASSES) else f"class {most}"
        found[value] = colours.get(most, default)
    return found


def _stated_names(text: Path | None) -> dict[int, str]:
    """Names of the instances in a text file, as Penn-Fudan's Annotation folder has them."""
    stated = "" if text is None else text.read_text("utf-8", errors="replace")
    return {int(number): name for number, name in _STATED.findall(stated)}


def _label_map(folder: Folder, repairs: Repairs) -> dict[int, str]:
    """CVAT's labelmap.txt, `name:r,g,b:…:…`: the class of each colour."""
    found = {}
    for file in folder.with_suffix(".txt"):
        if file.name != "labelmap.txt":
            continue
        for number, line in enumerate(file.read_text("utf-8", errors="replace").splitlines(), start=1):
            name, _, rest = line.partition(":")
            if len(colour := rest.split(":")[0].split(",")) != 3 or line.startswith("#"):
                continue
            try:
                red, green, blue = (int(value) for value in colour)
            except ValueError as error:
                repairs.add("line cannot be read, skipped", file.name, f"line {number}: {error}")
                continue
            found[int(np.dot([65_536, 256, 1], [red, green, blue]))] = name
    return found
