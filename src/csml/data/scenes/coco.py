"""COCO's JSON files of any name, one or one per split, with images, annotations and categories."""

import json
import math
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

from csml.data.scenes.folder import Folder, role_of
from csml.data.scenes.raw_annotations import Part, RawAnnotations, RawObject, RawScene, Repairs
from csml.errors import CsmlError
from csml.files import read_file

LARGEST = 4 * 2**30
"""Largest size of an annotation file in bytes; COCO's own have half a gigabyte."""
_LONGEST_SIDE = 10**6
"""In pixels; a larger stated size is ignored."""
_KEYS = (b'"images"', b'"annotations"', b'"categories"')
_ENDS = 65_536
"""Bytes at both ends of a JSON file that are searched for its keys."""
_OWN = "instances"
"""COCO's files with this in their name have boxes; those beside them have captions and key points."""


def is_coco(folder: Folder) -> bool:
    return bool(_files(folder))


def coco_parts(folder: Folder) -> list[Part]:
    """Every COCO file, named by its path; its role comes from its name, such as instances_train2017.json, or from its
    folder, such as valid/_annotations.coco.json."""
    files = _files(folder) or folder.with_suffix(".json")
    roles = {file: role_of(file.stem) or folder.role(file) for file in files}
    own = {role for file, role in roles.items() if _OWN in file.stem}
    return [
        Part(
            folder.relative(file),
            role if role not in own or _OWN in file.stem else None,
            partial(_read_part, folder, file),
            joins=False,
        )
        for file, role in roles.items()
    ]


def _files(folder: Folder) -> list[Path]:
    return [file for file in folder.with_suffix(".json") if _looks_like_coco(file)]


def _looks_like_coco(file: Path) -> bool:
    """Whether two of COCO's three keys are near the ends of a file, which may be too large to read twice."""
    try:
        with file.open("rb") as opened:
            text = opened.read(_ENDS)
            opened.seek(max(len(text), file.stat().st_size - _ENDS))
            text += opened.read()
    except OSError:
        return False
    return sum(key in text for key in _KEYS) >= 2


def _read_part(folder: Folder, file: Path, repairs: Repairs) -> RawAnnotations:
    content = read_coco(file)
    categories = _categories(file, content)
    return RawAnnotations(
        _scenes(folder, file, content, categories, repairs), {n: id for id, n in categories.items()}, file
    )


def read_coco(file: Path) -> dict[str, Any]:
    """The content of a COCO file of bounded size: images, annotations and categories are lists of objects."""
    try:
        content = json.loads(read_file(file, LARGEST))
    except (OSError, ValueError, RecursionError) as error:
        raise CsmlError(f"data: {file} cannot be read as JSON ({error})") from error
    for key in ("images", "annotations", "categories"):
        if not isinstance(content, dict) or not isinstance(content.get(key), list):
            raise CsmlError(f"data: {file} is not a COCO file: it has no list of {key}")
        if not all(isinstance(row, dict) for row in content[key]):
            raise CsmlError(f"data: {file} is not a COCO file: its {key} are not all objects")
    return content


def _categories(file: Path, content: dict[str, Any]) -> dict[int, str]:
    try:
        named = {int(row["id"]): str(row["name"]) for row in content["categories"]}
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise CsmlError(f"data: a category of {file} has no id or no name") from error
    if not named:
        raise CsmlError(f"data: {file} has no categories")
    used = {key_of(row.get("category_id")) for row in content["annotations"]}
    parents = {str(row.get("supercategory")) for row in content["categories"]}
    # Roboflow lists the group of all classes as an additional class without objects.
    groups = {id for id, name in named.items() if id not in used and name in parents and len(named) > 1}
    return {id: name for id, name in sorted(named.items()) if id not in groups}


def key_of(id: Any) -> Any:
    """An id as a dictionary key; None for anything other than a number or a text."""
    return id if isinstance(id, int | float | str) else None


def numbers_in(values: Any, count: int) -> list[float] | None:
    """A list of `count` finite numbers; None for anything else."""
    try:
        found = [float(value) for value in values]
    except (TypeError, ValueError, OverflowError):
        return None
    return found if len(found) == count and all(map(math.isfinite, found)) else None


def _scenes(
    folder: Folder, file: Path, content: dict[str, Any], categories: dict[int, str], repairs: Repairs
) -> list[RawScene]:
    images: dict[Any, tuple[str, tuple[int, int] | None]] = {}
    for row in content["images"]:
        if not isinstance(row.get("file_name"), str) or not isinstance(row.get("id"), (int, str)):
            raise CsmlError(f"data: an image of {file} has no id or no file_name")
        if row["id"] in images:
            raise CsmlError(f"data: {file} has two images with the id {row['id']}")
        sized = all(isinstance(row.get(side), int) and 0 < row[side] <= _LONGEST_SIDE for side in ("height", "width"))
        name = row["file_name"].replace("\\", "/")
        images[row["id"]] = (name, (row["height"], row["width"]) if sized else None)
    objects: dict[Any, list[RawObject]] = defaultdict(list)
    for row in content["annotations"]:
        image, category = key_of(row.get("image_id")), key_of(row.get("category_id"))
        if image not in images:
            repairs.add("annotation of an unlisted image, skipped", f"image_id {image}")
        elif category not in categories:
            repairs.add(f"annotation of the unlisted category {category}, skipped", images[image][0])
        else:
            box = _corners(row.get("bbox"))
            crowd = bool(row.get("iscrowd", 0))
            objects[image].append(RawObject(categories[category], box, crowd, False, row.get("segmentation")))
    place = _image_folder(folder.root, file, [name for name, _ in images.values()])
    return [RawScene(_image(folder, file, place, name), id, size, objects[id]) for id, (name, size) in images.items()]


def _image(folder: Folder, file: Path, place: Path | None, name: str) -> Path:
    """The image in `place`; without a place, the nearest one with the same file name below the data folder.

    Label Studio writes paths on its own server, which must not be followed.
    """
    outside = Path(name).is_absolute() or ".." in Path(name).parts
    if place is not None and not outside:
        return place / name
    found = folder.image(file, name=Path(name).name)
    if found is None and outside:
        raise CsmlError(f"data: {file} names a file outside of its folder: {name}")
    return found or file.parent / Path(name).name


def _corners(box: Any) -> tuple[float, float, float, float] | None:
    """x, y, width, height → corners. A negative width is an error, not a swap of corners; it becomes 0."""
    found = numbers_in(box, 4)
    if found is None:
        return None
    x, y, width, height = found
    return x, y, x + max(0.0, width), y + max(0.0, height)


def _image_folder(root: Path, file: Path, names: list[str]) -> Path | None:
    """The folder with most of the first few images: one named after the file, one beside it, or any other in `root`;
    None if no folder has any of them."""
    split = file.stem.rsplit("_", 1)[-1]  # instances_val2017 → val2017
    candidates = [root / split, root / "images" / split, root / "images", file.parent, file.parent / "images", root]
    candidates += [file.parent / "data", file.parent / "data" / split]  # FiftyOne's
    others = sorted(path for pattern in ("*", "images/*", "*/images") for path in root.glob(pattern))
    names = [name for name in names if not Path(name).is_absolute() and ".." not in Path(name).parts][:20]

    def existing(folder: Path) -> int:
        return sum((folder / name).exists() for name in names)

    best = (max(folders, key=existing, default=root) for folders in (candidates, others))
    return next((folder for folder in best if existing(folder)), None)
