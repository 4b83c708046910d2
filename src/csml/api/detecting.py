"""`csml.detect`: a detector around a backbone, trained on annotated scenes and scored."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from csml.api.auto_preset import AutoPreset, is_automatic
from csml.api.auto_preset_detect import choose_preset, disagreements, explain
from csml.api.data import open_together
from csml.api.fastest_precision import as_in_run, with_fastest_mode
from csml.api.run import PathLike, Run, path_of, required_weights
from csml.api.scoring import write_test
from csml.api.session import Options, Session, run_session, start, train
from csml.api.settings import given, training_config
from csml.config import RANDOM, DetectConfig, detect_preset, is_untrained, is_weight_name
from csml.console import show_log
from csml.data.loading import fabric_for
from csml.data.scenes.open import SceneSplits, open_scenes
from csml.distributed.launch import join_world
from csml.errors import CsmlError
from csml.evaluation.detection_test import DetectionTest
from csml.models.backbones import build_backbone
from csml.models.detectors import build_detector
from csml.models.merged_batchnorm import fix_and_merge_batchnorm
from csml.runs.directory import RunDirectory
from csml.runs.metadata import read_metadata
from csml.runs.settings import read_settings
from csml.training.build import seeded
from csml.training.detection import Detection
from csml.weights import finds_objects, load_backbone, network_of, save_detector

log = logging.getLogger("csml")

_CHANNELS = 3
"""Detectors read RGB, whatever the images were that the backbone was pre-trained on."""


@show_log()
def detect(
    weights: "Run | PathLike | None" = None,
    *,
    data: PathLike | None = None,
    out: PathLike | None = None,
    preset: str | None = None,
    config: PathLike | None = None,
    resume: "Run | PathLike | None" = None,
    overwrite: bool = False,
    **settings: Any,
) -> Run:
    """Train a detector around a backbone on annotated images, and score it on the test images.

    Args:
        weights: a run, its directory, a weight file, or `random` for an untrained backbone.
        data: a folder with annotations in any layout that `csml.scenes` understands, or `synthetic`.
        preset: `auto`, the default for a folder without `config`: image size, anchors and length are chosen from the
            boxes; `small-c4`, `small-fpn`, `voc-c4`, `coco-fpn-1x`, `coco-fpn-2x`.
        out, config, resume, overwrite: as `pretrain`.
        settings: any setting of `csml detect --help`.
    """
    settings |= given(data=data, out=out)
    made = detect_config(weights, preset=preset, config=config, resume=resume, **settings)
    return start(run_detect, made, overwrite, resume)


def detect_config(weights: "Run | PathLike | None" = None, **call: Any) -> DetectConfig:
    """The settings that `detect` would run with, checked."""
    call |= given(weights=path_of(weights))
    tested = call.get("test") or ()
    if "weights" not in call and isinstance(tested, str) and finds_objects(tested):
        raise CsmlError(f"test: {tested} is a detector; score it on other images: csml score RUN --data FOLDER")
    fitted: AutoPreset | None = None
    if call.get("resume") is None and is_automatic(call.get("preset"), call.get("config"), call.get("data")):
        call["preset"] = None
        plain = training_config(DetectConfig, detect_preset, None, **call)
        fitted = choose_preset(open_data(plain).train.annotations, plain.hardware)
        call |= {"preset": fitted.preset, "chosen": lambda given: fitted.settings}
    made = training_config(DetectConfig, detect_preset, None, **call)
    start = required_weights(made.weights, "detect", "or random")
    if start != RANDOM:
        made = replace(made, model=network_of(start))
    if made.detector.fixed_batchnorm is None and call.get("resume") is None:
        made = replace(made, detector=replace(made.detector, fixed_batchnorm=_had_fixed_batchnorm(start)))
    if fitted is not None:
        explain(fitted, made, call)
    return made


def _had_fixed_batchnorm(weights: str) -> bool:
    """Whether the BatchNorm statistics of the backbone were fixed when these weights were trained."""
    if is_weight_name(weights):
        return not is_untrained(weights)
    config = RunDirectory(Path(weights).expanduser()).config
    return config.exists() and bool(read_settings(config.parent).get("model.fixed_batchnorm"))


def start_of_pretraining(weights: str) -> str | None:
    """The weights that a pre-training run `weights` started from; None if there are none, or it is no such run."""
    if is_weight_name(weights):
        return None
    config = RunDirectory(Path(weights).expanduser()).config
    return read_settings(config.parent).get("model.weights") if config.exists() else None


def open_data(config: DetectConfig) -> SceneSplits:
    """Open the scenes that the settings name."""
    return open_scenes(config.data, config.scenes, config.format, config.train, config.test, config.split)


def run_detect(config: DetectConfig, options: Options, in_memory: None = None) -> Path:
    """Train in this process, which may be one of several; returns the run directory."""
    world = join_world(config.hardware)
    data = open_together(
        world,
        lambda: open_data(config),
        lambda splits: splits.train.images,
        config.data,
    )
    masks = _wants_masks(config, data)
    with seeded(config.seed):
        if config.weights == RANDOM:
            net = build_backbone(config.model.backbone, config.model.small_images)
        else:
            net = load_backbone(str(config.weights), _CHANNELS)
        if config.detector.fixed_batchnorm:
            fix_and_merge_batchnorm(net)
        detector = build_detector(net, config.detector, len(data.train.classes), masks)
    with run_session(world, "detect", config, options, f"{Path(config.data).name}-detect", data.notes) as session:
        for warning in (*data.warnings, *disagreements(config, data.train.annotations)):
            log.warning(warning)
        data.repairs.log()
        if first := start_of_pretraining(str(config.weights)):
            log.info(
                "%s is %s after unlabelled training, which made no detector better so far (docs/objects.md); "
                "compare: csml detect %s",
                config.weights, first, first,
            )  # fmt: skip
        if data.repairs.rows and world.is_rank_zero:
            data.repairs.write(session.run.repairs)
        config = _with_resolved_hardware(session, config)
        fabric = fabric_for(data.train.images, config.scenes.workers, config.hardware)
        test = DetectionTest(data.test, data.format, config.scenes, config.batch_size, masks, config.voc_points, fabric)
        task = Detection(config, detector, data.train, masks, test, session.run, fabric)
        train(session, task, config, fabric)
        task.load_best_weights()
        facts = {"weights": config.weights, "data": config.data, "iterations": config.schedule.iterations}
        score = write_test(test, task.kept, session.run, facts)
        if world.is_rank_zero:
            save_detector(session.run.detector, task.kept, config, data.train.classes, masks, score)
    return session.run.root


def _with_resolved_hardware(session: Session, config: DetectConfig) -> DetectConfig:
    """The settings with precision and memory layout decided: anew, or as recorded by a resumed run."""
    hardware = as_in_run(config.hardware, read_metadata(session.run.root) if session.resumed else {})
    network, side = config.model, config.scenes.test_side
    hardware, _ = with_fastest_mode(hardware, network.backbone, side, session.world, small_images=network.small_images)
    return replace(config, hardware=hardware)


def _wants_masks(config: DetectConfig, data: SceneSplits) -> bool:
    """Whether to learn masks: by the setting, else if the data has masks; logs objects without one."""
    truth, wanted = data.train.annotations, config.detector.masks
    if config.detector.kind != "fpn" or wanted is False:
        return False
    if wanted and not len(truth.counts):
        raise CsmlError("detector.masks: the data has no masks")
    if not wanted and not truth.have_masks():
        if len(truth.counts):
            log.info("too few objects have masks, so only boxes are learnt (detector.masks true: learn from those)")
        return False
    for id in truth.without_mask().tolist():
        data.repairs.add("object without a mask, not learnt", data.train.images.name(id))
    return True
