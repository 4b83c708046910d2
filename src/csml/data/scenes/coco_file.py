"""Scenes as a COCO file: for scores by pycocotools, and to convert any layout to COCO's."""

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

from pycocotools import mask as rle

from csml.data.images import FileImages, source_ids, source_of
from csml.data.scenes.annotations import Scenes
from csml.errors import CsmlError
from csml.files import write_json
from csml.progress import watched


def as_coco(scenes: Scenes, names: list[str] | None = None) -> dict[str, Any]:
    """The content of a COCO file; masks are pycocotools' compressed bytes.

    Args:
        scenes: images and objects.
        names: `file_name` of each image; None to leave it out.
    """
    annotations: list[dict[str, Any]] = []
    for id in range(len(scenes)):
        objects = scenes.annotations.objects(id)
        rows = zip(objects.boxes.tolist(), objects.labels.tolist(), objects.crowd.tolist(), objects.masks, strict=True)
        for (x0, y0, x1, y1), label, crowd, mask in rows:
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": scenes.image_ids[id],
                    "category_id": scenes.category_ids[label],
                    "bbox": [x0, y0, x1 - x0, y1 - y0],
                    "area": float(rle.area(mask)) if mask is not None else (x1 - x0) * (y1 - y0),
                    "iscrowd": int(crowd),
                    **({} if mask is None else {"segmentation": mask}),
                }
            )
    images: list[dict[str, Any]] = [
        {"id": id, "height": height, "width": width}
        for id, (height, width) in zip(scenes.image_ids, scenes.annotations.sizes.tolist(), strict=True)
    ]
    for row, name in zip(images, names or [], strict=names is not None):
        row["file_name"] = name
    categories = [{"id": id, "name": name} for id, name in zip(scenes.category_ids, scenes.classes, strict=True)]
    return {"info": {}, "images": images, "categories": categories, "annotations": annotations}


def write_coco(parts: dict[str, Scenes], folder: Path) -> None:
    """Write each part as annotations/instances_PART.json, with its images in a folder PART.

    Images are hard links where the disk allows it, else copies.
    """
    for part, scenes in parts.items():
        images = source_of(scenes.images)
        if not isinstance(images, FileImages):
            raise CsmlError("coco: only images in files can be converted, not drawn ones")
        names: list[str] = []
        used: set[str] = set()
        sources = source_ids(scenes.images).tolist()
        for id in watched(sources, f"copying {part}", total=len(sources)):
            source = Path(str(images.source(id)))
            name = source.name if source.name not in used else f"{len(used)}-{source.name}"
            used.add(name)
            names.append(name)
            _place(source, folder / part / name)
        content = as_coco(scenes, names)
        for number, row in enumerate(content["images"], start=1):  # other readers expect numbers
            row["id"] = number
        numbers = {id: number for number, id in enumerate(scenes.image_ids, start=1)}
        for row in content["annotations"]:
            row["image_id"] = numbers[row["image_id"]]
            if "segmentation" in row:
                code = row["segmentation"]
                row["segmentation"] = {"size": list(code["size"]), "counts": code["counts"].decode("ascii")}
        write_json(folder / "annotations" / f"instances_{part}.json", content, indent=None)


def _place(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError):
        os.link(source, target)
        return
    shutil.copyfile(source, target)
