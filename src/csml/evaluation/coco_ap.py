"""COCO's scores, computed by pycocotools: AP over IoU 0.5 … 0.95, at 0.5 and 0.75, and by object size."""

import contextlib
import io
from pathlib import Path
from typing import Any

from csml.data.scenes import Scenes
from csml.data.scenes.coco import key_of, numbers_in, read_coco
from csml.data.scenes.coco_file import as_coco
from csml.data.scenes.repair import compressed
from csml.extras import extra

with extra("detect", "detection"):
    from pycocotools import mask as rle
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

_NAMES = ("AP", "AP50", "AP75", "AP_S", "AP_M", "AP_L")


def coco_scores(
    scenes: Scenes, results: list[dict[str, Any]], masks: bool, image_ids: list[int | str]
) -> dict[str, Any]:
    """Scores of boxes (`box`) and, with `masks`, of masks (`mask`): percent, None without objects, and AP by class.

    Args:
        scenes: the ground truth; if it was read from a COCO file, that file is scored against directly.
        results: detections in COCO's result format.
        masks: whether the results have masks to score.
        image_ids: the images that the detector has processed.
    """
    truth = _completed(scenes.truth, scenes) if scenes.truth is not None else as_coco(scenes)
    numbers = _Numbers(scenes)
    truth["images"], truth["categories"] = numbers.images(truth["images"]), numbers.categories(scenes.classes)
    truth["annotations"], results = numbers.rows(truth["annotations"]), numbers.rows(results)
    seen = [numbers.image[id] for id in image_ids]
    scores = {"box": _score(truth, results, "bbox", scenes, seen)}
    if masks:
        # Without boxes, pycocotools takes a detection's area from its mask, as it does for the ground truth.
        only_masks = [{key: value for key, value in result.items() if key != "bbox"} for result in results]
        with_mask = {**truth, "annotations": [row for row in truth["annotations"] if "segmentation" in row]}
        scores["mask"] = _score(with_mask, only_masks, "segm", scenes, seen)
    return scores


class _Numbers:
    """Images and classes numbered from 1: a file's ids may be strings, mixed types, or beyond numpy's range."""

    def __init__(self, scenes: Scenes) -> None:
        # Detections of equal score are ranked in this order.
        order = sorted(scenes.image_ids, key=lambda id: (isinstance(id, str), id))
        self.image = {id: number for number, id in enumerate(order, start=1)}
        self.category = {id: number for number, id in enumerate(scenes.category_ids, start=1)}

    def images(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**row, "id": self.image[row["id"]]} for row in rows]

    def categories(self, names: tuple[str, ...]) -> list[dict[str, Any]]:
        return [{"id": id, "name": name} for id, name in zip(self.category.values(), names, strict=True)]

    def rows(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Annotations or detections."""
        return [
            {**row, "image_id": self.image[row["image_id"]], "category_id": self.category[row["category_id"]]}
            for row in rows
        ]


def _score(
    content: dict[str, Any], results: list[dict[str, Any]], kind: str, scenes: Scenes, image_ids: list[int]
) -> dict[str, Any]:
    with contextlib.redirect_stdout(io.StringIO()):  # pycocotools prints to stdout
        truth = COCO()
        truth.dataset = content
        truth.createIndex()
        found = COCO()
        if results:
            found = truth.loadRes([dict(row) for row in results])  # it adds its own fields
        else:
            found.dataset = {**content, "annotations": []}
            found.createIndex()
        evaluation = COCOeval(truth, found, kind)
        evaluation.params.imgIds = sorted(image_ids)
        evaluation.params.catIds = [row["id"] for row in content["categories"]]
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    precision = evaluation.eval["precision"][:, :, :, 0, -1]  # (IoU, recall, class), all sizes, most detections
    by_class = [_percent(values.mean() if (values > -1).all() else -1) for values in precision.transpose(2, 0, 1)]
    scores: dict[str, Any] = {name: _percent(value) for name, value in zip(_NAMES, evaluation.stats, strict=False)}
    halves = [_percent(values.mean() if (values > -1).all() else -1) for values in precision[0].T]  # IoU 0.5
    return {
        **scores,
        "per_class": dict(zip(scenes.classes, by_class, strict=True)),
        "per_class_AP50": dict(zip(scenes.classes, halves, strict=True)),
    }


def _percent(value: float) -> float | None:
    return None if value < 0 else 100 * float(value)


def _completed(file: Path, scenes: Scenes) -> dict[str, Any]:
    """The content of a COCO file, with the fields that pycocotools requires but some exporters leave out.

    Entries that pycocotools cannot process are skipped, as when the file was first read (`repair.py`).
    """
    content = read_coco(file)
    sizes = {id: tuple(size) for id, size in zip(scenes.image_ids, scenes.annotations.sizes.tolist(), strict=True)}
    images = [{"id": id, "height": height, "width": width} for id, (height, width) in sizes.items()]
    listed = set(scenes.category_ids)
    kept: list[dict[str, Any]] = []
    for row in content["annotations"]:
        image, category = key_of(row.get("image_id")), key_of(row.get("category_id"))
        if image not in sizes or category not in listed:
            continue
        mask = None
        with contextlib.suppress(ValueError, TypeError, KeyError, IndexError, OverflowError):
            mask = compressed(row.get("segmentation"), sizes[image])
        box = numbers_in(row.get("bbox"), 4)
        if box is None and mask is None:
            continue
        box = box if box is not None else rle.toBbox(mask).tolist()
        area = numbers_in([row.get("area")], 1) or [float(rle.area(mask)) if mask is not None else box[2] * box[3]]
        one = {"id": len(kept) + 1, "image_id": image, "category_id": category, "bbox": box, "area": area[0]}
        kept.append({**one, "iscrowd": int(bool(row.get("iscrowd", 0))), **({"segmentation": mask} if mask else {})})
    return {"info": {}, "images": images, "categories": [], "annotations": kept}
