"""`csml detect --preset auto`: image size, anchors and length from the boxes; warnings where they disagree."""

import logging
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from csml.api.auto_preset import AutoPreset
from csml.config import DetectConfig, HardwareConfig, detect_preset
from csml.distributed.device import accelerator_of
from csml.program import program

if TYPE_CHECKING:  # it needs the extra [detect]
    from csml.data.scenes import Annotations

log = logging.getLogger("csml")

_SEEN = 16
"""Side in pixels that the typical box of the smallest class should have: four cells of the finest map."""
_SIDES_CPU, _SIDES_GPU = (160, 320), (320, 800)
"""Smallest and largest shorter side of an image."""
_VISITS_CPU, _VISITS_GPU = 12, 36
"""Number of passes over the images."""
_LARGEST, _STEPS = (75, 85, 92, 97), (1.3, 1.45, 1.6, 1.8, 2.0, 2.2)
"""Candidates: the percentile of the box sides that the largest anchor has, and the ratio of one anchor to the next."""
_USUAL_RATIOS = (0.5, 1.0, 2.0)
_MOST_BOXES = 5000
"""Number of boxes that anchors are fitted to, evenly spaced."""
_REACH = 0.5
"""IoU with the nearest anchor below which a box counts as out of reach."""
_TOLERATED = 0.25
"""Share of boxes that may be out of reach or too small without a warning."""
_TOO_SMALL = 6
"""Side in pixels of boxes that hardly any detector finds."""


def choose_preset(truth: "Annotations", hardware: HardwareConfig) -> AutoPreset:
    """Settings for these objects on the accelerator that the hardware settings ask for."""
    on_gpu = accelerator_of(hardware) == "cuda"
    preset = "coco-fpn-1x" if on_gpu else "small-fpn"
    shares = _shares(truth)  # (T,)
    side = _side(truth, shares, _SIDES_GPU if on_gpu else _SIDES_CPU)
    most = int(truth.count_learnable().max(initial=1))
    batch = min(8, len(truth))
    visits = _VISITS_GPU if on_gpu else _VISITS_CPU
    iterations = int(np.clip(visits * len(truth) / batch, 300, 24_000 if on_gpu else 3000))
    ratio = float(np.percentile(truth.sizes.max(axis=1) / truth.sizes.min(axis=1), 95))
    longest = int(np.ceil(min(3.0, max(1.34, ratio)) * side / 32)) * 32
    anchors, ratios = _anchors(_learnt(truth) * _scales(truth, side, longest)[:, None])
    settings: dict[str, Any] = {
        "batch_size": batch,
        "scenes.short_sides": [round(side * scale / 32) * 32 for scale in (0.8, 0.9, 1.0)] if on_gpu else [side],
        "scenes.test_side": side,
        "scenes.max_side": longest,
        "detector.anchors": anchors,
        "detector.ratios": ratios,
        "detector.max_detections": max(20, int(np.ceil(1.5 * most))),
        "detector.proposals": int(max(detect_preset(preset).get("detector.proposals", 2000), 8 * most)),
        "schedule.iterations": iterations,
        "schedule.warmup": max(20, iterations // 20),
        "schedule.report_every": max(1, iterations // 10),
        "schedule.test_every": max(1, iterations // 5),
    }
    pixels = float(np.median(shares) * np.median(truth.sizes.min(axis=1)))
    why = f"{len(truth):,} images, boxes of about {pixels:.0f} pixels, at most {most} on an image"
    return AutoPreset(preset, settings, why)


def explain(fitted: AutoPreset, config: DetectConfig, call: Mapping[str, Any]) -> None:
    """Log the chosen preset and the equivalent command."""
    command = f"{program()} detect {config.weights} --preset {fitted.preset} --data {shlex.quote(config.data)}"
    log.info("preset auto: %s (%s); the same as:\n    %s %s", fitted.preset, fitted.why, command, fitted.options(call))


def disagreements(config: DetectConfig, truth: "Annotations") -> list[str]:
    """Warnings where the settings do not suit the boxes to learn from."""
    found = []
    sides = np.array(config.scenes.short_sides, dtype=np.float64)
    scale = _scales(truth, float(sides.mean()), config.scenes.max_side)  # (T,)
    boxes = _learnt(truth) * scale[:, None]  # (T, 2)
    if not len(boxes):
        return []
    far = best_overlap(boxes, config.detector.anchors, config.detector.ratios) < _REACH
    roots = np.sqrt(boxes.prod(axis=1))
    if far.mean() > _TOLERATED:
        low, median, high = np.percentile(roots, (5, 50, 95))
        found.append(
            f"{far.mean():.0%} of the boxes are out of reach of the anchors: at this image size they have sides of "
            f"{low:.0f} to {high:.0f} pixels (median {median:.0f}), detector.anchors are "
            f"{list(config.detector.anchors)}, detector.ratios {list(config.detector.ratios)}; try --preset auto"
        )
    small = (roots < _TOO_SMALL).mean()
    if small > _TOLERATED:
        found.append(
            f"{small:.0%} of the boxes have less than {_TOO_SMALL} pixels at this image size; raise "
            f"scenes.short_sides and scenes.test_side, or cut the images into tiles"
        )
    most = int(truth.count_learnable().max(initial=0))
    if most > config.detector.max_detections:
        found.append(
            f"an image has {most} objects, and detector.max_detections is {config.detector.max_detections}; raise it"
        )
    return found


def best_overlap(boxes: np.ndarray, anchors: tuple[int, ...], ratios: tuple[float, ...]) -> np.ndarray:
    """IoU `(T,)` of each box `(T, 2)`, width and height, with the most similar anchor at the same place."""
    sides = np.array(anchors, dtype=np.float64)[:, None]
    stretch = np.sqrt(np.array(ratios, dtype=np.float64))[None]
    shapes = np.stack([(sides / stretch).ravel(), (sides * stretch).ravel()], axis=1)  # (A, 2)
    shapes = 2 * np.round(shapes / 2)  # as torchvision's anchors, whose corners are whole pixels
    shared = np.minimum(boxes[:, None], shapes[None]).prod(axis=2)  # (T, A)
    union = boxes.prod(axis=1)[:, None] + shapes.prod(axis=1)[None] - shared
    return np.asarray((shared / union).max(axis=1))


def _learnt(truth: "Annotations") -> np.ndarray:
    """Width and height `(T, 2)` of the objects to learn."""
    boxes = truth.boxes[~truth.crowd].astype(np.float64)
    return boxes[:, 2:] - boxes[:, :2]


def _images(truth: "Annotations") -> np.ndarray:
    """The image `(T,)` of each object to learn."""
    return np.repeat(np.arange(len(truth)), np.diff(truth.starts))[~truth.crowd]


def _shares(truth: "Annotations") -> np.ndarray:
    """Root of the area of each box over the shorter side of its image `(T,)`."""
    return np.sqrt(_learnt(truth).prod(axis=1)) / truth.sizes.min(axis=1)[_images(truth)]


def _scales(truth: "Annotations", side: float, longest: float) -> np.ndarray:
    """Factor `(T,)` by which resizing its image enlarges each object."""
    sizes = truth.sizes[_images(truth)]
    return np.minimum(side / sizes.min(axis=1), longest / sizes.max(axis=1))


def _side(truth: "Annotations", shares: np.ndarray, bounds: tuple[int, int]) -> int:
    """The shorter side at which the typical box of the smallest class is large enough; at most that of the images."""
    labels = truth.labels[~truth.crowd]
    smallest = min(float(np.median(shares[labels == label])) for label in np.unique(labels))
    own = float(np.median(truth.sizes.min(axis=1)))
    wanted = min(_SEEN / max(smallest, 1e-3), max(own, bounds[0]))
    return int(np.clip(32 * np.ceil(wanted / 32), *bounds))


def _anchors(boxes: np.ndarray) -> tuple[list[int], list[float]]:
    """Five sides, one per level of the pyramid, and three ratios of height to width: the candidates with most boxes
    `(T, 2)`, width and height, in reach."""
    boxes = boxes[:: max(1, len(boxes) // _MOST_BOXES)]
    largest = np.percentile(np.sqrt(boxes.prod(axis=1)), _LARGEST)
    low, middle, high = np.percentile(boxes[:, 1] / boxes[:, 0], (10, 50, 90))
    own = (min(low, middle / 1.4), middle, max(high, middle * 1.4))
    tried = []
    for largest_side in largest.tolist():
        for step in _STEPS:
            sides = [max(4, round(largest_side / step**power)) for power in range(4, -1, -1)]
            for ratios in (_USUAL_RATIOS, own):
                rounded = [round(float(np.clip(ratio, 0.2, 5)), 2) for ratio in ratios]
                overlap = best_overlap(boxes, tuple(sides), tuple(rounded))
                tried.append(((overlap >= _REACH).mean() + overlap.mean(), sides, rounded))
    _, sides, ratios_found = max(tried, key=lambda one: one[0])
    return sides, ratios_found
