"""COCO's scores, computed by pycocotools: AP over IoU 0.5 … 0.95, at 0.5 and 0.75, and by object size."""

import contextlib
import io
from pathlib import Path
from typing import Any

from csml.data.scenes import Scenes
from csml.data.scenes.coco import key_of, read_coco
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
    scores = {"box": _score(truth, results, "bbox", scenes, image_ids)}
    if masks:
        # Without boxes, pycocotools takes a detection's area from its mask, as it does for the ground truth.
        only_masks = [{key: value for key, value in result.items() if key != "bbox"} for result in results]
        with_mask = {**truth, "annotations": [row for row in truth["annotations"] if "segmentation" in row]}
        scores["mask"] = _score(with_mask, only_masks, "segm", scenes, image_ids)
    return scores


def _score(
    content: dict[str, Any], results: list[dict[str, Any]], kind: str, scenes: Scenes, image_ids: list[int | str]
) -> dict[str, Any]:
    with contextlib.redirect_stdout(io.StringIO()):  # pycocotools prints to stdout
        truth = COCO()
        truth.dataset = content
        truth.createIndex()
        found = COCO()
        if results:
            found = truth.loadRes([dict(row) for row in results])  # it adds fields of its own
        else:
            found.dataset = {**content, "annotations": []}
            found.createIndex()
        evaluation = COCOeval(truth, found, kind)
        evaluation.params.imgIds = sorted(image_ids)
        evaluation.params.catIds = list(scenes.category_ids)
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
    """The content of a COCO file, with the fields that pycocotools requires but some exporters leave out."""
    content = read_coco(file)
    sizes = {id: tuple(size) for id, size in zip(scenes.image_ids, scenes.annotations.sizes.tolist(), strict=True)}
    images = [row for row in content["images"] if row["id"] in sizes]
    for row in images:
        row["height"], row["width"] = sizes[row["id"]]
    kept = []
    for number, row in enumerate(row for row in content["annotations"] if key_of(row.get("image_id")) in sizes):
        row = {"iscrowd": 0, **row, "id": number + 1}
        mask = None
        with contextlib.suppress(ValueError, TypeError, KeyError, IndexError):
            mask = compressed(row.pop("segmentation", None), sizes[row["image_id"]])
            row["segmentation"] = mask
        box = row.get("bbox")
        if not (isinstance(box, list) and len(box) == 4) and mask is None:
            continue
        row["bbox"] = box if isinstance(box, list) and len(box) == 4 else rle.toBbox(mask).tolist()
        row.setdefault("area", float(rle.area(mask)) if mask is not None else row["bbox"][2] * row["bbox"][3])
        kept.append(row)
    return {"info": {}, "images": images, "categories": content["categories"], "annotations": kept}
