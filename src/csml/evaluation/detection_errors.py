"""Errors of a detector: precision and recall, the best threshold, confusion matrix, and errors by kind.

A detection hits an object of its class with an IoU of at least 0.5. Crowds and difficult objects are left out.
"""

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torchvision.ops import box_iou

if TYPE_CHECKING:  # needs the extra [detect], which a report does not
    from csml.data.scenes import Scenes

BACKGROUND = "background"
KINDS = ("class", "place", "duplicate", "background")
"""Kinds of wrong detections: another class, IoU of 0.1 to 0.5, duplicate, background."""
_HIT, _NEAR = 0.5, 0.1
_MARKS = 101
"""Number of recall points of a curve."""
_EXTREMES = 8
"""Number of best and of worst images to list."""
_BEST = "best F1 at IoU 0.5 on the test images"
"""How a detector's threshold was chosen."""


class _Image(NamedTuple):
    """The objects and the detections of one image, best detection first."""

    id: int
    truth: np.ndarray
    """`(O,)` labels"""
    labels: np.ndarray
    """`(D,)`"""
    scores: np.ndarray
    """`(D,)`"""
    overlaps: np.ndarray
    """`(D, O)` IoU"""


def detection_errors(scenes: "Scenes", results: list[dict[str, Any]], image_ids: list[int | str]) -> dict[str, Any]:
    """Curves, threshold, confusion matrix and errors of detections in COCO's result format; plain values for JSON.

    Args:
        scenes: the ground truth.
        results: the detections.
        image_ids: the images that the detector has processed.
    """
    images = _gathered(scenes, results, image_ids)
    hits = [_hits(image) for image in images]
    scores = np.concatenate([image.scores for image in images] or [np.zeros(0)])
    right = np.concatenate([own >= 0 for own in hits] or [np.zeros(0, bool)])
    labels = np.concatenate([image.labels for image in images] or [np.zeros(0, np.int64)])
    total = np.bincount(np.concatenate([image.truth for image in images] or [np.zeros(0, np.int64)]).astype(np.int64),
                        minlength=len(scenes.classes))  # fmt: skip
    threshold, f1 = _best_f1(scores, right, int(total.sum()))
    return {
        "threshold": {"score": threshold, "f1": f1, "why": _BEST if f1 else "no detection is right at any score"},
        "curves": {
            name: _curve(scores[labels == label], right[labels == label], int(total[label]))
            for label, name in enumerate(scenes.classes)
        },
        "confusion": {"names": [*scenes.classes, BACKGROUND], "counts": _confusion(images, threshold, scenes)},
        **_kinds(scenes, images, hits, threshold),
    }


def _gathered(scenes: "Scenes", results: list[dict[str, Any]], image_ids: list[int | str]) -> list[_Image]:
    ids = {name: id for id, name in enumerate(scenes.image_ids)}
    labels = {category: label for label, category in enumerate(scenes.category_ids)}
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for result in results:
        found[ids[result["image_id"]]].append(result)
    images = []
    for id in (ids[name] for name in image_ids):
        objects = scenes.annotations.objects(id)
        wanted = ~(objects.crowd | objects.difficult)
        rows = sorted(found[id], key=lambda row: -row["score"])
        corners = np.array([row["bbox"] for row in rows], dtype=np.float64).reshape(-1, 4)
        corners[:, 2:] += corners[:, :2]
        truth = torch.from_numpy(objects.boxes[wanted].astype(np.float64))
        images.append(
            _Image(
                id,
                objects.labels[wanted],
                np.array([labels[row["category_id"]] for row in rows], dtype=np.int64),
                np.array([row["score"] for row in rows], dtype=np.float64),
                box_iou(torch.from_numpy(corners), truth).numpy(),
            )
        )
    return images


def _hits(image: _Image) -> np.ndarray:
    """The object `(D,)` that each detection hits, or −1; each object can be hit only once."""
    hit = np.full(len(image.labels), -1)
    left = np.ones(len(image.truth), bool)
    for row, label in enumerate(image.labels.tolist()):
        fitting = np.where(left & (image.truth == label), image.overlaps[row], 0.0)
        if len(fitting) and fitting.max() >= _HIT:
            hit[row] = int(fitting.argmax())
            left[hit[row]] = False
    return hit


def _best_f1(scores: np.ndarray, right: np.ndarray, total: int) -> tuple[float, float]:
    """The score threshold with the best F1, and that F1."""
    if not len(scores) or not total:
        return 0.5, 0.0
    order = np.argsort(-scores, kind="stable")
    f1 = 2 * np.cumsum(right[order]) / (np.arange(1, len(order) + 1) + total)
    f1[np.flatnonzero(np.diff(scores[order]) == 0)] = 0.0  # a threshold keeps all detections of a score, or none
    best = int(f1.argmax())
    return (float(scores[order][best]), float(f1[best])) if f1[best] > 0 else (0.5, 0.0)


def _curve(scores: np.ndarray, right: np.ndarray, total: int) -> dict[str, list[float]] | None:
    """Precision at 101 recalls, the highest at this recall or above, as in pycocotools; None without objects."""
    if not total:
        return None
    hits = np.cumsum(right[np.argsort(-scores, kind="stable")])
    recall = hits / total
    precision = hits / np.arange(1, len(hits) + 1)
    marks = np.linspace(0, 1, _MARKS)
    return {
        "recall": marks.round(4).tolist(),
        "precision": [round(float(precision[recall >= mark].max(initial=0.0)), 4) for mark in marks],
    }


def _confusion(images: list[_Image], threshold: float, scenes: "Scenes") -> list[list[int]]:
    """Rows: true class; columns: detected class; the last of both is the background."""
    classes = len(scenes.classes)
    counts = np.zeros((classes + 1, classes + 1), np.int64)
    for image in images:
        left = np.ones(len(image.truth), bool)
        for row in np.flatnonzero(image.scores >= threshold).tolist():
            # Of several objects at this place, prefer one of the same class.
            overlaps = np.where(left & (image.overlaps[row] >= _HIT), image.overlaps[row], 0.0)
            overlaps = overlaps + (overlaps > 0) * (image.truth == image.labels[row])
            place = int(overlaps.argmax()) if len(overlaps) and overlaps.max() > 0 else -1
            counts[image.truth[place] if place >= 0 else classes, image.labels[row]] += 1
            if place >= 0:
                left[place] = False
        for label in image.truth[left].tolist():
            counts[label, classes] += 1
    return counts.tolist()


def _kinds(scenes: "Scenes", images: list[_Image], hits: list[np.ndarray], threshold: float) -> dict[str, Any]:
    """Errors by kind in total, by class, and the images with the lowest and highest F1."""
    total: dict[str, int] = dict.fromkeys(("right", *KINDS, "missed"), 0)
    by_class = {name: dict.fromkeys(total, 0) for name in scenes.classes}
    f1: list[tuple[float, int, dict[str, int]]] = []
    for image, hit in zip(images, hits, strict=True):
        own = dict.fromkeys(total, 0)
        found = set()
        for row in np.flatnonzero(image.scores >= threshold).tolist():
            kind = "right" if hit[row] >= 0 else _kind(image, row)
            found.add(int(hit[row]))
            own[kind] += 1
            by_class[scenes.classes[image.labels[row]]][kind] += 1
        for place, label in enumerate(image.truth.tolist()):
            if place not in found:
                own["missed"] += 1
                by_class[scenes.classes[label]]["missed"] += 1
        total = {kind: total[kind] + own[kind] for kind in total}
        wrong = sum(own[kind] for kind in KINDS)
        if own["right"] + wrong + own["missed"]:
            f1.append((2 * own["right"] / (2 * own["right"] + wrong + own["missed"]), image.id, own))
    f1.sort(key=lambda one: (one[0], one[1]))
    named = [{"image": scenes.images.name(id), "f1": round(score, 4), **own} for score, id, own in f1]
    return {
        "errors": {"total": total, "by_class": by_class},
        "worst": named[:_EXTREMES],
        "best": named[::-1][:_EXTREMES],
    }


def _kind(image: _Image, row: int) -> str:
    """The kind of error of a wrong detection."""
    overlaps = image.overlaps[row]
    same = image.truth == image.labels[row]
    if (overlaps[same] >= _HIT).any():
        return "duplicate"
    if (overlaps[~same] >= _HIT).any():
        return "class"
    return "place" if (overlaps[same] >= _NEAR).any() else "background"
