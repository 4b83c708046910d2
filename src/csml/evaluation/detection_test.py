"""A test of a detector on annotated images: detections, scores and errors."""

from typing import Any, NamedTuple

from lightning_fabric import Fabric

from csml.config import ScenesConfig
from csml.data.failures import Failures
from csml.data.scenes import Scenes
from csml.evaluation.coco_ap import coco_scores
from csml.evaluation.detection_errors import detection_errors
from csml.evaluation.detections import SceneDetections, as_results, detect
from csml.evaluation.voc_ap import voc_scores
from csml.models.detectors import Detector


class TestResult(NamedTuple):
    """The result of a test."""

    scores: dict[str, Any]
    """box and, with masks, mask: AP, AP50, … in percent, also per class"""
    results: list[dict[str, Any]]
    """detections in COCO's result format"""
    seen: list[int | str]
    """the images that could be read"""
    shown: list[tuple[int, SceneDetections]]
    """ids and detections of some images, for a sheet"""


class DetectionTest:
    """A detector's test images, and how they are scored.

    Args:
        scenes: the test images.
        format: of the annotations; voc has its own scores.
        reading: image sizes and workers.
        batch_size: images per batch.
        masks: whether the detector has masks.
        voc_points: how VOC's AP is computed.
        fabric: device, precision and processes.
    """

    def __init__(
        self,
        scenes: Scenes,
        format: str,
        reading: ScenesConfig,
        batch_size: int,
        masks: bool,
        voc_points: str,
        fabric: Fabric,
    ) -> None:
        self.scenes, self.format, self.reading, self.batch_size = scenes, format, reading, batch_size
        self.masks, self.voc_points, self.fabric = masks, voc_points, fabric
        # Shared by all tests, so that the log names an unreadable file only once.
        self.failures = Failures(scenes.images, reading.max_failed, "--scenes.max_failed")

    def run(self, detector: Detector, show: int = 0) -> TestResult:
        """Test a detector; `show`: number of images whose detections are kept for a sheet."""
        scenes = self.scenes
        every = max(1, len(scenes) // show) if show else len(scenes) + 1
        results: list[dict[str, Any]] = []
        seen: list[int | str] = []
        shown: list[tuple[int, SceneDetections]] = []
        for id, found in detect(detector, scenes, self.reading, self.batch_size, self.fabric, self.failures):
            results += as_results(scenes, id, found)
            seen.append(scenes.image_ids[id])
            if id % every == 0 and len(shown) < show:
                shown.append((id, found))
        if self.format == "voc" and not (self.masks and scenes.annotations.have_masks()):
            scores = voc_scores(scenes, results, self.voc_points, seen)
        else:
            scores = coco_scores(scenes, results, self.masks and scenes.annotations.have_masks(), seen)
        return TestResult(scores, results, seen, shown)

    def errors(self, tested: TestResult) -> dict[str, Any]:
        """Curves, threshold, confusion matrix and errors by kind."""
        return detection_errors(self.scenes, tested.results, tested.seen)
