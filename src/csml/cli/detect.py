"""`csml detect WEIGHTS`: a detector around a backbone, trained, scored and drawn."""

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from csml.cli.training import Options, train
from csml.cli.training import parse as parse_training
from csml.config.checks import check_detect
from csml.config.detection import RANDOM, DetectConfig
from csml.config.presets import DETECT_PRESETS, detect_preset
from csml.errors import CsmlError

if TYPE_CHECKING:
    from csml.data.scenes.open import SceneSplits
    from csml.evaluation.detections import Found
    from csml.training.detection import DetectionTraining
    from csml.training.loop import TrainingLoop
    from csml.training.run_directory import RunDirectory

log = logging.getLogger("csml")

_SUMMARY = "Train a detector around a backbone on VOC or COCO annotations, score it, and draw what it finds."
_SHEET_IMAGES, _SHEET_SCORE = 12, 0.5


def run(arguments: list[str]) -> int:
    """Parse, check, train, score."""
    return detect(*parse(arguments))


def parse(arguments: list[str]) -> tuple[DetectConfig, Options]:
    arguments = list(arguments)
    for place, word in enumerate(arguments[1:], 1):  # a single name is a list of one
        if arguments[place - 1] in ("--train", "--test") and not word.startswith("["):
            arguments[place] = json.dumps([word])
    return parse_training(
        "detect",
        DetectConfig,
        _SUMMARY,
        arguments,
        check_detect,
        preset=detect_preset,
        presets=DETECT_PRESETS,
        from_weights=True,
        inherits=None,
    )


def detect(config: DetectConfig, options: Options | None = None) -> int:
    """Carry out a checked config; returns the exit code."""
    import torch

    from csml.data.scenes.open import open_scenes
    from csml.models.backbones import build_backbone
    from csml.models.detectors import build_detector
    from csml.training.detection import DetectionTraining
    from csml.training.launch import join_world
    from csml.weights import load_backbone, network_of

    if config.weights is None:
        raise CsmlError("weights: give what to start from: csml detect RUN, or csml detect random")
    if config.weights != RANDOM:
        config.model = network_of(config.weights)
    data = open_scenes(config.data, config.scenes, config.format, config.train, config.test)
    masks = _wants_masks(config, data)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        if config.weights == RANDOM:
            net = build_backbone(config.model.backbone, config.model.small_images)
        else:
            net = load_backbone(config.weights)
        detector = build_detector(net, config.detector, len(data.train.classes), masks)

    def make(run: "RunDirectory") -> "TrainingLoop":
        data.repairs.log()
        if data.repairs.rows and join_world(config.hardware).first:
            data.repairs.write(run.root / "repairs.csv")
        return DetectionTraining(config, detector, data.train, masks, run)

    def finish(loop: "TrainingLoop") -> None:
        assert isinstance(loop, DetectionTraining)
        _score(loop, data)

    return train(config, options or Options(), f"{Path(config.data).name}-detect", data.notes, make, finish)


def _wants_masks(config: DetectConfig, data: "SceneSplits") -> bool:
    """What was asked for, else whether there are some; objects without are named."""
    truth, asked = data.train.annotations, config.detector.masks
    if config.detector.kind != "fpn" or asked is False:
        return False
    if asked and not len(truth.counts):
        raise CsmlError("detector.masks: the data has no masks")
    if not asked and not truth.have_masks():
        if len(truth.counts):
            log.info(
                "too few objects have masks, so only boxes are learnt (--detector.masks true: only those with masks)"
            )
        return False
    for id in truth.without_mask().tolist():
        data.repairs.add("object without a mask, not learnt", data.train.images.name(id))
    return True


def _score(loop: "DetectionTraining", data: "SceneSplits") -> None:
    """Detections, scores and a sheet of the test images."""
    from csml.data.cache import atomic_write
    from csml.data.failures import Failures
    from csml.evaluation.coco_ap import coco_scores
    from csml.evaluation.detections import as_results, detect
    from csml.evaluation.voc_ap import voc_scores
    from csml.report.detection_sheet import detection_sheet
    from csml.training.run_directory import write_json

    config, scenes, root = loop.config, data.test, loop.run.root
    failures = Failures(scenes.images, config.scenes.max_failed)
    failures.option = loop.failures.option
    drawn_every = max(1, len(scenes) // _SHEET_IMAGES)
    results: list[dict[str, Any]] = []
    seen: list[int | str] = []
    drawn: list[tuple[int, Found]] = []
    for id, found in detect(loop.detector, scenes, config.scenes, config.batch_size, loop.fabric, failures):
        results += as_results(scenes, id, found)
        seen.append(scenes.image_ids[id])
        if id % drawn_every == 0 and len(drawn) < _SHEET_IMAGES:
            drawn.append((id, found))
    if not loop.world.first:
        return
    with atomic_write(root / "detections.json") as temporary:
        temporary.write_text(json.dumps(results))
    if data.format == "voc":
        scores = voc_scores(scenes, results, config.voc_points, seen)
    else:
        scores = coco_scores(scenes, results, loop.masks and scenes.annotations.have_masks(), seen)
    facts = {"weights": config.weights, "data": config.data, "format": data.format, "images": len(seen)}
    write_json(root / "detect.json", {**facts, "iterations": config.schedule.iterations, **scores})
    detection_sheet(scenes, drawn, _SHEET_SCORE).save(root / "detections.png")
    _show(scores, root)


def _show(scores: dict[str, Any], root: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    names = [name for name in scores["box"] if name != "per_class"]
    table = Table("", *names, title="Test images")
    for kind, values in scores.items():
        table.add_row(kind, *("" if values[name] is None else f"{values[name]:.1f}" for name in names))
    Console().print(table)
    log.info("detections: %s, drawn in detections.png", root / "detections.json")
    log.info("the detector, in Python:")
    log.info("    import csml")
    log.info("    detector, facts = csml.load_detector(%r)", str(root))
    log.info("    found = detector([image])  # (3, h, w), uint8 or in [0, 1] → boxes, labels from 1, scores, masks")
