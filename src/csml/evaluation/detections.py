"""Detections of all scenes, and their conversion to COCO's result format."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from lightning_fabric import Fabric

from csml.config import ScenesConfig
from csml.data.failures import Failures
from csml.data.loading import worker_count
from csml.data.scenes import Scenes
from csml.data.scenes.annotations import Rle, encode_masks
from csml.data.scenes.loading import ScenePlan, as_input, plans_in_order, scene_batches
from csml.distributed.world import world_of
from csml.models.detectors import Detection, Detector
from csml.progress import watched

_PASTED_AT_ONCE = 8
"""Largest number of full-size masks in memory."""


class SceneDetections(NamedTuple):
    """The D objects detected on an image, best first, in pixels of the original image."""

    boxes: np.ndarray
    """float32 `(D, 4)`: x0, y0, x1, y1"""
    labels: np.ndarray
    """int64 `(D,)`, counted from 0"""
    scores: np.ndarray
    """float32 `(D,)`"""
    masks: list[Rle] | None
    """None if the detector has no mask head"""


def detect(
    detector: Detector, scenes: Scenes, config: ScenesConfig, batch_size: int, fabric: Fabric, failures: Failures
) -> Iterator[tuple[int, SceneDetections]]:
    """Yield the id of each scene and its detections; scenes that cannot be read are added to `failures`."""
    plans = plans_in_order(len(scenes), batch_size, config.test_side)
    batches = world_of(fabric).map_in_order(plans, partial(_detect, detector, scenes, config, fabric))
    for failed, found in watched(batches, "detecting", total=len(plans)):
        failures.add(failed)
        yield from found


@torch.no_grad()
def _detect(
    detector: Detector, scenes: Scenes, config: ScenesConfig, fabric: Fabric, plans: Sequence[ScenePlan]
) -> Iterator[tuple[list[int], list[tuple[int, SceneDetections]]]]:
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
            detections, resized_sizes, _ = detector.run_network(images)
        rows = zip(batch.ids, detections, resized_sizes, batch.sizes, strict=True)
        yield (
            batch.failed,
            [(id, to_scene_detections(detector, found, resized, size)) for id, found, resized, size in rows],
        )
    detector.train(was_training)


def to_scene_detections(
    detector: Detector, detection: Detection, resized: tuple[int, int], size: tuple[int, int]
) -> SceneDetections:
    """Rescale a detection to the original image; masks are pasted a few at a time and kept compressed."""
    chunks: list[Detection] = []
    codes: list[Rle] = []
    count = max(1, len(detection["scores"]))
    at_once = _PASTED_AT_ONCE if "masks" in detection else count
    for start in range(0, count, at_once):
        chunk = {key: value[start : start + at_once] for key, value in detection.items()}
        chunks.append({key: value.cpu() for key, value in detector.rescale(chunk, resized, size).items()})
        masks = chunks[-1].pop("masks", None)
        codes += [] if masks is None or not len(masks) else encode_masks((masks[:, 0] > 0.5).numpy())
    boxes, labels, scores = (torch.cat([c[key] for c in chunks]).numpy() for key in ("boxes", "labels", "scores"))
    return SceneDetections(boxes, labels - 1, scores, codes if "masks" in detection else None)


def as_results(scenes: Scenes, id: int, found: SceneDetections) -> list[dict[str, Any]]:
    """One scene's detections in COCO's result format: image_id, category_id, bbox (x, y, width, height), score and,
    with masks, segmentation."""
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


def from_results(scenes: Scenes, id: int, results: Sequence[dict[str, Any]]) -> SceneDetections:
    """The inverse of `as_results`, from the detections of all scenes or of this one."""
    labels = {category: label for label, category in enumerate(scenes.category_ids)}
    own = [result for result in results if result["image_id"] == scenes.image_ids[id]]
    boxes = np.array([result["bbox"] for result in own], np.float32).reshape(-1, 4)
    boxes[:, 2:] += boxes[:, :2]
    codes = [result["segmentation"] for result in own if "segmentation" in result]
    masks: list[Rle] = [{**code, "counts": code["counts"].encode("ascii")} for code in codes]
    return SceneDetections(
        boxes,
        np.array([labels[result["category_id"]] for result in own], np.int64),
        np.array([result["score"] for result in own], np.float32),
        masks if masks else None,
    )
