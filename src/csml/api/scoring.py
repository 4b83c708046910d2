"""`csml.score`: test a detector on other annotated images; and write the files of a detector test."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from csml.api.run import PathLike, Run, path_of
from csml.api.settings import given, plain_config
from csml.config import ScoreConfig
from csml.console import show_log
from csml.data.loading import fabric_for
from csml.distributed.device import memory_format
from csml.distributed.launch import require_alone
from csml.distributed.world import world_of
from csml.errors import CsmlError
from csml.extras import MissingExtra
from csml.files import atomic_write, read_json, write_json
from csml.models.detectors import Detector
from csml.runs.directory import RunDirectory
from csml.runs.opening import new_run, require_free
from csml.weights import load_detector

if TYPE_CHECKING:  # it needs the extra [detect]
    from csml.evaluation.detection_test import DetectionTest

log = logging.getLogger("csml")

_ON_SHEET = 12


@dataclass(frozen=True)
class ScoreResult:
    """Scores of a detector on annotated images."""

    path: Path
    """folder with detect.json, detections.json, detections.png, worst.png, best.png and figures/"""
    result: dict[str, Any]
    """the content of detect.json: box and mask with AP, AP50, …; threshold, curves, confusion, errors"""


@show_log()
def score(
    weights: "Run | PathLike", data: PathLike | None = None, *, config: PathLike | None = None, **settings: Any
) -> ScoreResult:
    """Score a detector on annotated images, by default on all of the folder.

    Args:
        weights: a run of `detect`, or its detector.safetensors.
        data: a folder with annotations in any layout that `csml.scenes` understands; classes are matched by name.
        config: a YAML file of settings.
        settings: any setting of `csml score --help`.
    """
    from csml.data.scenes.open import open_annotated
    from csml.evaluation.detection_test import DetectionTest

    made = score_config(weights, data, config=config, **settings)
    require_alone("score", made.hardware)
    if made.data is None:
        raise CsmlError("data: give the annotated images to score on: csml score RUN --data FOLDER")
    require_free(made.out)
    detector, facts = load_detector(str(path_of(weights)))
    scenes, format, repairs = open_annotated(made.data, facts["classes"], made.format, made.test)
    repairs.log()
    run = new_run(made.out, f"{Path(made.data).name}-score")
    if repairs.rows:
        repairs.write(run.repairs)
    fabric = fabric_for(scenes.images, made.scenes.workers, made.hardware)
    reading = replace(made.scenes, test_side=facts["test_side"], max_side=facts["max_side"], short_sides=(32,))
    test = DetectionTest(scenes, format, reading, made.batch_size, facts["masks"], made.voc_points, fabric)
    known = {"weights": str(path_of(weights)), "data": made.data}
    laid_out = detector.to(fabric.device).to(memory_format=memory_format(made.hardware))
    write_test(test, laid_out, run, known)
    return ScoreResult(run.root, read_json(run.result("detect")))


def score_config(weights: Any, data: Any = None, *, config: PathLike | None = None, **settings: Any) -> ScoreConfig:
    """The settings that `score` would run with, checked; `weights` is ignored."""
    return plain_config(ScoreConfig, {**settings, **given(data=None if data is None else str(data))}, config)


def write_test(test: "DetectionTest", detector: Detector, run: RunDirectory, facts: Mapping[str, Any]) -> float:
    """Test a detector and write detect.json, detections.json, sheets and figures; returns the best threshold."""
    from csml.evaluation.detections import from_results
    from csml.sheets.detection_figures import draw_figures
    from csml.sheets.detections import detection_sheet

    scenes = test.scenes
    tested = test.run(detector, show=_ON_SHEET)
    errors = test.errors(tested)
    threshold = errors["threshold"]
    if not world_of(test.fabric).is_rank_zero:
        return float(threshold["score"])
    write_json(run.detections, tested.results, indent=None)
    classes = dict(zip(scenes.classes, scenes.category_ids, strict=True))
    known = {**facts, "format": test.format, "images": len(tested.seen), "category_ids": classes}
    write_json(run.result("detect"), {**known, **tested.scores, **errors})
    sheets = [(tested.shown, run.detection_sheet)]
    ids = {scenes.images.name(id): id for id in range(len(scenes))}
    for which, file in (("worst", run.worst_detections), ("best", run.best_detections)):
        named = [ids[row["image"]] for row in errors[which]]
        if named:
            sheets.append(([(id, from_results(scenes, id, tested.results)) for id in named], file))
    why = "best F1" if threshold["f1"] else "none is right"
    for shown, file in sheets:
        with atomic_write(file) as path:
            detection_sheet(scenes, shown, threshold["score"], why=why).save(path)
    try:
        draw_figures(errors, run.detection_figures)
    except MissingExtra as problem:
        log.info(str(problem))
    return float(threshold["score"])
