"""The COCO format: for each split, a JSON file with images, annotations and categories, and a folder of images."""

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from csml.data.scenes.annotations import Scenes
from csml.data.scenes.repair import FoundObject, FoundScene, Repairs, assemble
from csml.errors import CsmlError, some

_TRAIN = ("annotations/instances_train*.json", "annotations/*train*.json", "train/*.json")
_TEST = (
    "annotations/instances_val*.json",
    "annotations/*val*.json",
    "val*/*.json",
    "annotations/*test*.json",
    "test/*.json",
)
"""Where COCO and common exporters put the files, the most common place first."""


def is_coco(root: Path) -> bool:
    return bool(_first_match(root, _TRAIN) and _first_match(root, _TEST))


def read_coco(
    root: Path, train: Sequence[str], test: Sequence[str], repairs: tuple[Repairs, Repairs]
) -> tuple[Scenes, Scenes]:
    """Read the training and the test scenes.

    Args:
        root: the folder.
        train, test: one JSON file each, relative to `root`; if empty, the usual places are searched.
        repairs: collects the problems of each split.
    """
    wanted = ((train, _TRAIN, "train"), (test, _TEST, "test"))
    files = [_file(root, names, patterns, key) for names, patterns, key in wanted]
    train_content = _read(files[0])
    categories = _categories(files[0], train_content)
    test_content = _read(files[1])
    unknown = {id: name for id, name in _categories(files[1], test_content).items() if categories.get(id) != name}
    if unknown:
        id, name = next(iter(unknown.items()))
        raise CsmlError(f"test: {files[1].name} has the category {id} {name!r}, which {files[0].name} does not have")
    first = _scenes(root, files[0], train_content, categories, repairs[0])
    return first, _scenes(root, files[1], test_content, categories, repairs[1])


def _file(root: Path, names: Sequence[str], patterns: Sequence[str], key: str) -> Path:
    if len(names) > 1:
        raise CsmlError(f"{key}: give one COCO file, not {len(names)}")
    matches = [] if names else _first_match(root, patterns)
    if len(matches) > 1:
        raise CsmlError(f"{key}: {root} has several: {some([file.name for file in matches])}; name one with --{key}")
    found = root / names[0] if names else next(iter(matches), None)
    if found is None or not found.exists():
        wanted = names[0] if names else f"such as {patterns[0]}"
        raise CsmlError(f"{key}: {root} has no file {wanted}; name it with --{key}")
    return found


def _first_match(root: Path, patterns: Sequence[str]) -> list[Path]:
    """The files that match the first pattern with any match."""
    return next((files for pattern in patterns if (files := sorted(root.glob(pattern)))), [])


def _read(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_bytes())
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
    except (KeyError, TypeError, ValueError) as error:
        raise CsmlError(f"data: a category of {file} has no id or no name") from error
    if not named:
        raise CsmlError(f"data: {file} has no categories")
    return dict(sorted(named.items()))


def _scenes(root: Path, file: Path, content: dict[str, Any], categories: dict[int, str], repairs: Repairs) -> Scenes:
    labels = {id: label for label, id in enumerate(categories)}
    images: dict[Any, tuple[str, tuple[int, int] | None]] = {}
    for row in content["images"]:
        if not isinstance(row.get("file_name"), str) or not isinstance(row.get("id"), (int, str)):
            raise CsmlError(f"data: an image of {file} has no id or no file_name")
        if row["id"] in images:
            raise CsmlError(f"data: {file} has two images with the id {row['id']}")
        if Path(row["file_name"]).is_absolute() or ".." in Path(row["file_name"]).parts:
            raise CsmlError(f"data: {file} names a file outside of its folder: {row['file_name']}")
        sized = isinstance(row.get("height"), int) and isinstance(row.get("width"), int)
        images[row["id"]] = (row["file_name"], (row["height"], row["width"]) if sized else None)
    objects: dict[Any, list[FoundObject]] = defaultdict(list)
    for row in content["annotations"]:
        image, category = row.get("image_id"), row.get("category_id")
        if image not in images:
            repairs.add("annotation of an unlisted image, skipped", f"image_id {image}")
        elif category not in labels:
            repairs.add(f"annotation of the unlisted category {category}, skipped", images[image][0])
        else:
            box = _corners(row.get("bbox"))
            crowd = bool(row.get("iscrowd", 0))
            objects[image].append(FoundObject(box, labels[category], crowd, False, row.get("segmentation")))
    folder = _image_folder(root, file, [name for name, _ in images.values()])
    found = [FoundScene(folder / name, id, size, objects[id]) for id, (name, size) in images.items()]
    return assemble(found, root, tuple(categories.values()), tuple(categories), repairs, truth=file)


def _corners(box: Any) -> tuple[float, float, float, float] | None:
    """x, y, width, height → corners. A negative width is an error, not a swap of corners; it becomes 0."""
    try:
        x, y, width, height = (float(value) for value in box)
    except (TypeError, ValueError):
        return None
    return x, y, x + max(0.0, width), y + max(0.0, height)


def _image_folder(root: Path, file: Path, names: list[str]) -> Path:
    """The folder with most of the first few images: one named after the file, one beside it, or any other in `root`."""
    split = file.stem.rsplit("_", 1)[-1]  # instances_val2017 → val2017
    candidates = [root / split, root / "images" / split, root / "images", file.parent, file.parent / "images", root]
    others = sorted(path for pattern in ("*", "images/*") for path in root.glob(pattern) if path.is_dir())

    def existing(folder: Path) -> int:
        return sum((folder / name).exists() for name in names[:20])

    best = max(candidates, key=existing)
    return best if existing(best) or not others else max(others, key=existing)
