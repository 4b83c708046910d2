"""A detector over all scenes, and its detections in COCO's standard form."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric

from csml.config.detection import ScenesConfig
from csml.data.failures import Failures
from csml.data.loading import worker_count
from csml.data.scenes import Scenes
from csml.data.scenes.annotations import encode_masks
from csml.data.scenes.loading import as_input, plans_in_order, scene_batches
from csml.models.detectors import Detection, Detector
from csml.progress import watched


@torch.no_grad()
def detect(
    detector: Detector, scenes: Scenes, config: ScenesConfig, batch_size: int, fabric: Fabric, failures: Failures
) -> Iterator[tuple[int, Detection]]:
    """Ids of scenes and what is found on them, on the CPU, in the pixels of its image; none if it cannot be read."""
    plans = plans_in_order(len(scenes), batch_size, config.test_side)
    workers = worker_count(scenes.images, config.workers, fabric.device.type)
    pin = fabric.device.type == "cuda"
    batches = scene_batches(scenes, plans, config.max_side, masks=False, workers=workers, pin=pin)
    was_training = detector.training
    detector.eval()
    for batch in watched(batches, "detecting", total=len(plans)):
        failures.add(batch.failed)
        if not batch.images:
            continue
        images, _ = as_input(batch, fabric.device)
        with fabric.autocast():
            found = detector(images, sizes=batch.sizes)
        for id, detection in zip(batch.ids, found, strict=True):
            yield id, {key: value.cpu() for key, value in detection.items()}
    detector.train(was_training)


def as_results(scenes: Scenes, id: int, detection: Detection) -> list[dict[str, Any]]:
    """COCO's result format: image_id, category_id, bbox (x, y, width, height), score, and segmentation with masks."""
    boxes = detection["boxes"].double().numpy()  # (D, 4)
    boxes = np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], axis=1).round(3)
    results: list[dict[str, Any]] = [
        {
            "image_id": scenes.image_ids[id],
            "category_id": scenes.category_ids[label - 1],
            "bbox": box,
            "score": round(score, 5),
        }
        for label, box, score in zip(
            detection["labels"].tolist(), boxes.tolist(), detection["scores"].double().tolist(), strict=True
        )
    ]
    if "masks" in detection:
        masks = encode_masks((detection["masks"][:, 0] > 0.5).numpy())
        for result, mask in zip(results, masks, strict=True):
            result["segmentation"] = {"size": list(mask["size"]), "counts": mask["counts"].decode("ascii")}
    return results
