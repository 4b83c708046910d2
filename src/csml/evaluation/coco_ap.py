"""COCO's scores by pycocotools: AP over IoU 0.5 … 0.95, at 0.5 and 0.75, and by size of the object."""

import contextlib
import io
from typing import Any

from pycocotools import mask as rle
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from csml.data.scenes import Scenes

_NAMES = ("AP", "AP50", "AP75", "AP_S", "AP_M", "AP_L")


def coco_scores(
    scenes: Scenes, results: list[dict[str, Any]], masks: bool, image_ids: list[int | str]
) -> dict[str, Any]:
    """`box` and, with masks, `mask`: scores in percent (None where there is nothing to find), and AP by class.

    Args:
        scenes: the truth.
        results: detections in COCO's form.
        masks: whether they have masks.
        image_ids: the images that were looked at.
    """
    with contextlib.redirect_stdout(io.StringIO()):  # pycocotools prints
        truth = COCO(str(scenes.truth)) if scenes.truth is not None else _as_coco(scenes)
        found = truth.loadRes(results) if results else None
        kinds = {"box": "bbox", **({"mask": "segm"} if masks else {})}
        return {name: _score(truth, found, kind, scenes, image_ids) for name, kind in kinds.items()}


def _score(truth: COCO, found: COCO | None, kind: str, scenes: Scenes, image_ids: list[int | str]) -> dict[str, Any]:
    if found is None:
        empty: dict[str, Any] = dict.fromkeys(_NAMES, 0.0)
        return {**empty, "per_class": dict.fromkeys(scenes.classes, 0.0)}
    judge = COCOeval(truth, found, kind)
    judge.params.imgIds = sorted(image_ids)
    judge.params.catIds = list(scenes.category_ids)
    judge.evaluate()
    judge.accumulate()
    judge.summarize()
    precision = judge.eval["precision"][:, :, :, 0, -1]  # (IoU, recall, class), all sizes, most detections
    by_class = [
        _percent(values[values > -1].mean() if (values > -1).any() else -1) for values in precision.transpose(2, 0, 1)
    ]
    scores: dict[str, Any] = {name: _percent(value) for name, value in zip(_NAMES, judge.stats, strict=False)}
    return {**scores, "per_class": dict(zip(scenes.classes, by_class, strict=True))}


def _percent(value: float) -> float | None:
    return None if value < 0 else 100 * float(value)


def _as_coco(scenes: Scenes) -> COCO:
    """The truth in memory as pycocotools wants it."""
    annotations: list[dict[str, Any]] = []
    for id in range(len(scenes)):
        objects = scenes.annotations.objects(id)
        for box, label, crowd, mask in zip(
            objects.boxes.tolist(), objects.labels.tolist(), objects.crowd.tolist(), objects.masks, strict=True
        ):
            x0, y0, x1, y1 = box
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
    truth = COCO()
    sizes = scenes.annotations.sizes.tolist()
    truth.dataset = {
        "info": {},
        "images": [{"id": id, "height": h, "width": w} for id, (h, w) in zip(scenes.image_ids, sizes, strict=True)],
        "categories": [{"id": id, "name": name} for id, name in zip(scenes.category_ids, scenes.classes, strict=True)],
        "annotations": annotations,
    }
    truth.createIndex()
    return truth
