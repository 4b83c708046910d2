"""VOC's scores as the field reports them: VOC's matching at IoU 0.5, at 0.75, and the mean over 0.5 … 0.95."""

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
    """`box`: AP, AP50, AP75 in percent, and AP50 by class (None for a class without an object to find).

    Args:
        scenes: the truth; difficult objects are neither to be found nor wrong to find.
        results: detections in COCO's form.
        points: "11" (VOC 2007) or "all".
        image_ids: the images that were looked at.
    """
    places = {name: id for id, name in enumerate(scenes.image_ids)}
    looked_at = [places[name] for name in image_ids]
    found: dict[int, list[tuple[float, int, list[float]]]] = defaultdict(list)  # of a class: score, image, box
    for result in results:
        x, y, width, height = result["bbox"]
        found[result["category_id"]].append(
            (result["score"], places[result["image_id"]], [x, y, x + width, y + height])
        )
    by_class = np.array(
        [
            _class_ap(scenes, label, found[category], looked_at, points)
            for label, category in enumerate(scenes.category_ids)
        ]
    )  # (classes, thresholds)
    known = ~np.isnan(by_class[:, 0])
    means = 100 * by_class[known].mean(axis=0) if known.any() else None
    names = zip(scenes.classes, by_class[:, 0].tolist(), known.tolist(), strict=True)
    return {
        "box": {
            "AP": None if means is None else float(means.mean()),
            "AP50": None if means is None else float(means[0]),
            "AP75": None if means is None else float(means[_THRESHOLDS.index(0.75)]),
            "per_class": {name: 100 * value if there else None for name, value, there in names},
        }
    }


def _class_ap(
    scenes: Scenes, label: int, found: list[tuple[float, int, list[float]]], looked_at: list[int], points: str
) -> list[float]:
    """AP at each threshold; NaN where there is nothing to find."""
    truth: dict[int, tuple[torch.Tensor, list[bool]]] = {}
    total = 0
    for id in looked_at:
        objects = scenes.annotations.objects(id)
        mine = objects.labels == label
        spared = (objects.difficult | objects.crowd)[mine]
        truth[id] = (torch.from_numpy(objects.boxes[mine]).double(), spared.tolist())
        total += int((~spared).sum())
    if total == 0:
        return [float("nan")] * len(_THRESHOLDS)
    found = sorted(found, key=lambda one: -one[0])  # stable: of equal scores the first stays first
    overlaps: list[tuple[int, int, float]] = []  # of each detection: image, its nearest object, IoU
    for _, id, box in found:
        boxes = truth[id][0]
        ious = box_iou(torch.tensor([box], dtype=torch.float64), boxes)[0] if len(boxes) else torch.zeros(0)
        overlaps.append((id, int(ious.argmax()), float(ious.max())) if len(boxes) else (id, -1, 0.0))
    return [_average_precision(*_matched(overlaps, truth, threshold), total, points) for threshold in _THRESHOLDS]


def _matched(
    overlaps: list[tuple[int, int, float]], truth: dict[int, tuple[torch.Tensor, list[bool]]], threshold: float
) -> tuple[np.ndarray, np.ndarray]:
    """Right and wrong `(D,)` of each detection: an object is found once; on a difficult one a detection is neither."""
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
        marks = np.arange(0.0, 1.1, 0.1)  # rounding included, as in VOC's own evaluation
        return float(np.mean([precision[recall >= mark].max(initial=0.0) for mark in marks]))
    best = np.maximum.accumulate(precision[::-1])[::-1]  # the highest at this recall or above
    return float(np.sum(np.diff(recall, prepend=0.0) * best))
