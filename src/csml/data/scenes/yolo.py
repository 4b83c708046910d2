"""YOLO's text files, one per image, each line a class number and a box or polygon in relative coordinates."""

import itertools
import os
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from csml.config.yaml_files import load_yaml
from csml.data.decode import DecodeError, Picture
from csml.data.scenes.folder import Folder
from csml.data.scenes.raw_annotations import Part, RawAnnotations, RawObject, RawScene, Repairs
from csml.errors import CsmlError, disk_problem, some
from csml.files import read_file
from csml.progress import watched

_LINE = re.compile(rb"\s*\d+(\s+[-+.\deE]+){4,}\s*")
_SPLITS = {"train": "train", "val": "val", "valid": "val", "test": "test"}
_NAME_FILES = ("classes.txt", "obj.names", "_darknet.labels", "labels.txt")
_LARGEST = 64 * 2**20
"""Largest size of an annotation file in bytes."""
_LOOKED_AT = 20


def is_yolo(folder: Folder) -> bool:
    return any(_is_label_file(file) and _image_of(folder, file) for file in folder.with_suffix(".txt")[:_LOOKED_AT])


def yolo_parts(folder: Folder) -> list[Part]:
    """The parts of data.yaml, if there is one and they exist; else label files by folder."""
    description = _description(folder)
    named = _names(folder, description)
    by_image = {_image_of(folder, file): file for file in folder.with_suffix(".txt")}
    by_role: dict[str | None, list[Path]] = {}
    for key, role in _SPLITS.items():
        if images := _listed(folder, description, key):
            by_role[role] = images
    if not by_role:
        for image in sorted(image for image in by_image if image is not None):
            by_role.setdefault(folder.role(image), []).append(image)
    return [
        Part(role or "all", role, partial(_read, folder, images, by_image, named))
        for role, images in by_role.items()
        if any(image in by_image for image in images)
    ]


def _is_label_file(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            line = opened.readline(4096)
    except OSError:
        return False
    return bool(_LINE.fullmatch(line))


def _image_of(folder: Folder, file: Path) -> Path | None:
    """The image of a label file: images/a.jpg for labels/a.txt, else the nearest with its stem."""
    return folder.image(Path(_swapped(file)), stem=file.stem)


def _swapped(file: Path) -> str:
    """The path with the last folder `labels` replaced by `images`."""
    head, found, tail = str(file).rpartition("/labels/")
    return f"{head}/images/{tail}" if found else str(file)


def _description(folder: Folder) -> dict[str, Any]:
    """data.yaml, or another YAML file with `names`; empty if there is none."""
    for file in sorted(folder.with_suffix(".yaml", ".yml"), key=lambda file: (file.name != "data.yaml", str(file))):
        try:
            content = load_yaml(read_file(file, _LARGEST).decode("utf-8"))
        except (OSError, ValueError) as error:
            if file.stem == "data":
                raise CsmlError(f"data: {file} cannot be read as YAML ({str(error).splitlines()[0]})") from error
            continue
        if isinstance(content, dict) and "names" in content:
            return {**content, "file": file}
    return {}


def _names(folder: Folder, description: dict[str, Any]) -> dict[int, str]:
    """Class names by number, from data.yaml or from a list such as classes.txt, one per line."""
    listed = description.get("names")
    if isinstance(listed, dict):
        if not all(isinstance(number, int) or str(number).isdecimal() for number in listed):
            raise CsmlError(f"data: names in {description['file']}: expected numbers of classes, such as 0: cat")
        return {number: str(name) for number, name in sorted((int(key), name) for key, name in listed.items())}
    if listed is None:
        file = next((f for f in folder.with_suffix(".txt", ".names", ".labels") if f.name in _NAME_FILES), None)
        listed = _text(file).split("\n") if file is not None else []
    if not isinstance(listed, list):
        raise CsmlError(f"data: names in {description['file']}: expected a list such as [cat, dog]")
    return {number: str(name).strip() for number, name in enumerate(listed) if str(name).strip()}


def _text(file: Path) -> str:
    try:
        return read_file(file, _LARGEST).decode("utf-8", errors="replace")
    except OSError as error:
        raise CsmlError(f"data: {file} cannot be read ({disk_problem(error)})") from error


def _listed(folder: Folder, description: dict[str, Any], key: str) -> list[Path]:
    """The images that data.yaml lists for a split: folders or lists of files, relative to its `path` or its own folder.

    Roboflow writes ../train/images instead of train/images; for paths of other machines, the last folders are matched.
    """
    stated = description.get(key)
    found: list[Path] = []
    for place in stated if isinstance(stated, list) else [stated]:
        if not isinstance(place, str):
            continue
        # Not resolved: the folder itself may be a link.
        places = (Path(os.path.normpath(place)) for place in _places(folder, description, place))
        root = os.path.normpath(folder.root)
        target = next((place for place in places if place.is_relative_to(root) and place.exists()), None)
        if target is None:
            continue
        if target.is_file():
            found += _named_in(folder, description, target)
        else:
            found += [image for image in folder.images if image.is_relative_to(target)]
    return found


def _places(folder: Folder, description: dict[str, Any], stated: str) -> Iterator[Path]:
    """Where a path stated in data.yaml may be, most likely first."""
    base = Path(description["file"]).parent
    yield from (base / str(description.get("path", "")) / stated, base / stated, folder.root / stated)
    words = [word for word in Path(stated).parts if word not in ("..", "/", ".")]
    yield from (base.joinpath(*words[-count:]) for count in range(len(words), 0, -1))


def _named_in(folder: Folder, description: dict[str, Any], file: Path) -> list[Path]:
    """The images that a list file names, one per line: by path, else by file name, the nearest to the list."""
    known = {os.path.normpath(image): image for image in folder.images}  # so no path leads out of the data set
    found = []
    for line in (line.strip() for line in _text(file).splitlines()):
        places = itertools.chain([file.parent / line], _places(folder, description, line))
        named = next((known[path] for place in places if (path := os.path.normpath(place)) in known), None)
        image = named or folder.image(file, name=Path(line).name)
        found += [] if image is None else [image]
    return found


def _read(
    folder: Folder, images: list[Path], labels_of: dict[Path | None, Path], names: dict[int, str], repairs: Repairs
) -> RawAnnotations:
    scenes = []
    unique = len({image.stem for image in images}) == len(images)
    for image in watched(images, "reading annotations", total=len(images)):
        id = image.stem if unique else folder.relative(image.with_suffix(""))
        label_file = labels_of.get(image)  # as in YOLO, an image without a label file has no objects
        try:
            picture = Picture(image)
        except DecodeError:
            scenes.append(RawScene(image, id, None, []))
            continue
        size = (picture.height, picture.width)
        picture.close()
        objects = [] if label_file is None else _objects(label_file, size, names, repairs)
        scenes.append(RawScene(image, id, size, objects))
    used = {one.name for scene in scenes for one in scene.objects}
    if not used:
        raise CsmlError(
            f"data: no label file of {some([image.name for image in images])} in {folder.root} has an object"
        )
    known = {name: number + 1 for number, name in names.items()}
    extra = {name: len(known) + place for place, name in enumerate(sorted(used - set(known)), start=1)}
    return RawAnnotations(scenes, known | extra)


def _objects(file: Path, size: tuple[int, int], names: dict[int, str], repairs: Repairs) -> list[RawObject]:
    height, width = size
    found = []
    for number, line in enumerate(_text(file).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            label, *values = (float(word) for word in line.split())
            if label != int(label) or (len(values) != 4 and (len(values) < 6 or len(values) % 2)):
                raise ValueError("it is neither a class and a box nor a class and a polygon")
        except (ValueError, OverflowError) as error:  # a class of inf overflows
            repairs.add("line cannot be read, skipped", file.name, f"line {number}: {error}")
            continue
        name = names.get(int(label), str(int(label)))
        if len(values) == 4:
            x, y, w, h = values
            box = ((x - w / 2) * width, (y - h / 2) * height, (x + w / 2) * width, (y + h / 2) * height)
            found.append(RawObject(name, box))
        else:
            polygon = [value * (height if place % 2 else width) for place, value in enumerate(values)]
            found.append(RawObject(name, None, segmentation=[polygon]))
    return found
