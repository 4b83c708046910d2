"""VOC's scores as papers report them: AP with VOC's matching at IoU 0.5, at 0.75, and the mean over 0.5 … 0.95."""

from collections import defaultdict
from typing import Any

import numpy as np
import torch
from torchvision.ops import box_iou

from csml.data.scenes import Scenes

_THRESHOLDS = tuple(threshold / 100 for threshold in range(50, 100, 5))


def voc_scores(
    scenes: Scenes, results: list[dict[str, Any]], points: str, image_ids: list[int | str]
) -> dict[str, Any]:
    """Scores of boxes (`box`): AP, AP50, AP75 in percent, and AP and AP50 by class (None without objects).

    Args:
        scenes: the ground truth; a difficult object is neither a miss nor, if detected, a false positive.
        results: detections in COCO's result format.
        points: recall points of the average precision: "11" (VOC 2007) or "all".
        image_ids: the images that the detector has processed.
    """
    ids = {name: id for id, name in enumerate(scenes.image_ids)}
    processed = [ids[name] for name in image_ids]
    found: dict[int, list[tuple[float, int, list[float]]]] = defaultdict(list)  # by class: score, image, box
    for result in results:
        x, y, width, height = result["bbox"]
        found[result["category_id"]].append((result["score"], ids[result["image_id"]], [x, y, x + width, y + height]))
    by_class = np.array(
        [
            _class_ap(scenes, label, found[category], processed, points)
            for label, category in enumerate(scenes.category_ids)
        ]
    )  # (classes, thresholds)
    known = ~np.isnan(by_class[:, 0])
    means = 100 * by_class[known].mean(axis=0) if known.any() else None
    return {
        "box": {
            "AP": None if means is None else float(means.mean()),
            "AP50": None if means is None else float(means[0]),
            "AP75": None if means is None else float(means[_THRESHOLDS.index(0.75)]),
            "per_class": _named(scenes.classes, by_class.mean(axis=1), known),
            "per_class_AP50": _named(scenes.classes, by_class[:, 0], known),
        }
    }


def _named(classes: tuple[str, ...], values: np.ndarray, known: np.ndarray) -> dict[str, float | None]:
    """Percent by class; None where a class has no objects."""
    rows = zip(classes, values.tolist(), known.tolist(), strict=True)
    return {name: 100 * value if is_known else None for name, value, is_known in rows}


def _class_ap(
    scenes: Scenes, label: int, found: list[tuple[float, int, list[float]]], processed: list[int], points: str
) -> list[float]:
    """AP at each threshold; NaN if the class has no objects."""
    truth: dict[int, tuple[torch.Tensor, list[bool]]] = {}
    total = 0
    for id in processed:
        objects = scenes.annotations.objects(id)
        of_class = objects.labels == label
        ignored = (objects.difficult | objects.crowd)[of_class]
        truth[id] = (torch.from_numpy(objects.boxes[of_class]).double(), ignored.tolist())
        total += int((~ignored).sum())
    if total == 0:
        return [float("nan")] * len(_THRESHOLDS)
    found = sorted(found, key=lambda one: -one[0])  # stable for equal scores
    overlaps: list[tuple[int, int, float]] = []  # for each detection: image, object with the highest IoU, IoU
    for _, id, box in found:
        boxes = truth[id][0]
        ious = box_iou(torch.tensor([box], dtype=torch.float64), boxes)[0] if len(boxes) else torch.zeros(0)
        overlaps.append((id, int(ious.argmax()), float(ious.max())) if len(boxes) else (id, -1, 0.0))
    return [_average_precision(*_matched(overlaps, truth, threshold), total, points) for threshold in _THRESHOLDS]


def _matched(
    overlaps: list[tuple[int, int, float]], truth: dict[int, tuple[torch.Tensor, list[bool]]], threshold: float
) -> tuple[np.ndarray, np.ndarray]:
    """True and false positives, bool `(D,)` each.

    An object is found once; a second detection is a false positive. A detection of a difficult object is neither.
    """
    right, wrong = np.zeros(len(overlaps), bool), np.zeros(len(overlaps), bool)
    taken: set[tuple[int, int]] = set()
    for row, (id, nearest, iou) in enumerate(overlaps):
        if iou <= threshold:
            wrong[row] = True
        elif truth[id][1][nearest]:
            continue
        elif (id, nearest) in taken:
            wrong[row] = True
        else:
            right[row] = True
            taken.add((id, nearest))
    return right, wrong


def _average_precision(right: np.ndarray, wrong: np.ndarray, total: int, points: str) -> float:
    hits = np.cumsum(right)
    recall = hits / total
    precision = hits / np.maximum(hits + np.cumsum(wrong), 1)
    if points == "11":
        marks = np.arange(0.0, 1.1, 0.1)  # with the same rounding errors as VOC's own evaluation
        return float(np.mean([precision[recall >= mark].max(initial=0.0) for mark in marks]))
    best = np.maximum.accumulate(precision[::-1])[::-1]  # the highest precision at this recall or above
    return float(np.sum(np.diff(recall, prepend=0.0) * best))
