"""A detector over all scenes, and its detections in COCO's standard form."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from lightning_fabric import Fabric

from csml.config.detection import ScenesConfig
from csml.data.failures import Failures
from csml.data.loading import worker_count
from csml.data.scenes import Scenes
from csml.data.scenes.annotations import Rle, encode_masks
from csml.data.scenes.loading import ScenePlan, as_input, plans_in_order, scene_batches
from csml.models.detectors import Detection, Detector
from csml.progress import watched
from csml.world import world_of

_PASTED_AT_ONCE = 8
"""Masks of the size of the image that are held at the same time."""


class Found(NamedTuple):
    """D objects on an image, best first, in its own pixels."""

    boxes: np.ndarray
    """float32 `(D, 4)`: x0, y0, x1, y1"""
    labels: np.ndarray
    """int64 `(D,)` from 0"""
    scores: np.ndarray
    """float32 `(D,)`"""
    masks: list[Rle] | None
    """None: the detector makes none"""


def detect(
    detector: Detector, scenes: Scenes, config: ScenesConfig, batch_size: int, fabric: Fabric, failures: Failures
) -> Iterator[tuple[int, Found]]:
    """Ids of scenes and what is found on each; none if it cannot be read."""
    plans = plans_in_order(len(scenes), batch_size, config.test_side)
    batches = world_of(fabric).in_turn(plans, partial(_detect, detector, scenes, config, fabric))
    for failed, found in watched(batches, "detecting", total=len(plans)):
        failures.add(failed)
        yield from found


@torch.no_grad()
def _detect(
    detector: Detector, scenes: Scenes, config: ScenesConfig, fabric: Fabric, plans: Sequence[ScenePlan]
) -> Iterator[tuple[list[int], list[tuple[int, Found]]]]:
    workers = worker_count(scenes.images, config.workers, fabric.device.type)
    pin = fabric.device.type == "cuda"
    batches = scene_batches(scenes, plans, config.max_side, masks=False, workers=workers, pin=pin)
    was_training = detector.training
    detector.eval()
    for batch in batches:
        if not batch.images:
            yield batch.failed, []
            continue
        images, _ = as_input(batch, fabric.device)
        with fabric.autocast():
            detections, seen, _ = detector.look(images)
        looked = zip(batch.ids, detections, seen, batch.sizes, strict=True)
        yield batch.failed, [(id, _placed(detector, found, before, size)) for id, found, before, size in looked]
    detector.train(was_training)


def _placed(detector: Detector, detection: Detection, seen: tuple[int, int], size: tuple[int, int]) -> Found:
    """Masks of a large image are pasted a few at a time, and kept compressed."""
    placed: list[Detection] = []
    codes: list[Rle] = []
    for start in range(0, max(1, len(detection["scores"])), _PASTED_AT_ONCE):
        part = {key: value[start : start + _PASTED_AT_ONCE] for key, value in detection.items()}
        placed.append({key: value.cpu() for key, value in detector.placed(part, seen, size).items()})
        masks = placed[-1].pop("masks", None)
        codes += [] if masks is None or not len(masks) else encode_masks((masks[:, 0] > 0.5).numpy())
    boxes, labels, scores = (torch.cat([part[key] for part in placed]).numpy() for key in ("boxes", "labels", "scores"))
    return Found(boxes, labels - 1, scores, codes if "masks" in detection else None)


def as_results(scenes: Scenes, id: int, found: Found) -> list[dict[str, Any]]:
    """COCO's result format: image_id, category_id, bbox (x, y, width, height), score, and segmentation with masks."""
    boxes = found.boxes.astype(np.float64)  # (D, 4)
    boxes = np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], axis=1).round(3)
    results: list[dict[str, Any]] = [
        {
            "image_id": scenes.image_ids[id],
            "category_id": scenes.category_ids[label],
            "bbox": box,
            "score": round(score, 5),
        }
        for label, box, score in zip(found.labels.tolist(), boxes.tolist(), found.scores.tolist(), strict=True)
    ]
    for result, mask in zip(results, found.masks or [], strict=found.masks is not None):
        result["segmentation"] = {"size": list(mask["size"]), "counts": mask["counts"].decode("ascii")}
    return results
