"""`csml supervised`: the baseline with labels, judged by the same commands as a pre-trained backbone."""

import csv
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from csml.cli.training import Options, how_to_use, train
from csml.cli.training import parse as parse_training
from csml.config.checks import check_against_data, check_supervised
from csml.config.presets import preset_settings
from csml.config.schema import ClassifierConfig, SupervisedConfig

if TYPE_CHECKING:
    from csml.data.images import Images
    from csml.data.labels import LabeledData
    from csml.models.classifier import Classifier
    from csml.training.loop import TrainingLoop
    from csml.training.run_directory import RunDirectory

log = logging.getLogger("csml")

_SUMMARY = "Train the same network on the same images with their labels: what pre-training is compared with."
_SHARED = ("data", "epochs", "batch_size", "images.", "model.backbone", "model.small_images")


def run(arguments: list[str]) -> int:
    """Parse, check, train."""
    return supervised(*parse(arguments))


def parse(arguments: list[str]) -> tuple[SupervisedConfig, Options]:
    return parse_training("supervised", SupervisedConfig, _SUMMARY, arguments, check_supervised, preset=_from_preset)


def _from_preset(name: str) -> dict[str, Any]:
    """The network and data of pre-training, and over them what the preset says of this command."""
    shared = {key: value for key, value in preset_settings(name).items() if key.startswith(_SHARED)}
    return shared | preset_settings(name, "supervised")


def supervised(config: SupervisedConfig, options: Options | None = None) -> int:
    """Carry out a checked config; returns the exit code."""
    import torch

    from csml.models.backbones import build_backbone
    from csml.models.classifier import Classifier

    labeled = open_labels(config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        backbone = build_backbone(config.model.backbone, config.model.small_images)
        classifier = Classifier(backbone, len(labeled.train.classes))
    return train_classifier("supervised", config, options or Options(), classifier, labeled)


def open_labels(config: SupervisedConfig) -> "LabeledData":
    """The labelled images that a config means."""
    from csml.data.labels import choose_labels
    from csml.data.open import open_data

    data = open_data(config.data, config.images)
    return choose_labels(data, config.labels, config.list, config.fraction, config.holdout, config.seed)


def train_classifier(
    command: str,
    config: ClassifierConfig,
    options: Options,
    classifier: "Classifier",
    labeled: "LabeledData",
    head_lr_per_256: float | None = None,
    resumes: Path | None = None,
    facts: dict[str, Any] | None = None,
    save: Callable[[Path], None] | None = None,
) -> int:
    """Train and test a classifier in a run directory; returns the exit code.

    `resumes`: the directory to give to --resume, if it is not the run's own; `facts` go into the result file; `save`
    writes what else belongs to the run before it starts.
    """
    from csml.training.launch import join_world
    from csml.training.run_directory import write_json
    from csml.training.supervised import SupervisedTraining

    if config.batch_size > len(labeled.train):
        log.info("batch_size: %d, all there is, instead of %d", len(labeled.train), config.batch_size)
        config = replace(config, batch_size=len(labeled.train))
    check_against_data(config, len(labeled.train))

    def make(run: "RunDirectory") -> "TrainingLoop":
        if join_world(config.hardware).first:
            for name, part in (("labels.csv", labeled.train), ("tests.csv", labeled.val)):
                if part is not None and not (run.root / name).exists():
                    write_labels(run.root / name, part)
            if save is not None and not options.resume:
                save(run.root)
        head_lr = None if head_lr_per_256 is None else head_lr_per_256 * config.batch_size / 256
        loop = SupervisedTraining(command, config, classifier, labeled.train, labeled.val, run, head_lr)
        loop.resumes = resumes or run.root
        return loop

    def finish(loop: "TrainingLoop") -> None:
        assert isinstance(loop, SupervisedTraining)
        result: dict[str, Any] = {"data": config.data, "epochs": config.epochs, "labels": len(labeled.train)}
        result |= facts or {}
        if labeled.val is not None:
            result |= {"classes": labeled.train.classes, **loop.test(), "best_top1": loop.best}
        if loop.world.first:
            write_json(loop.run.root / f"{command}.json", result)
        log.info(how_to_use(loop.run.root, labeled=True))

    return train(config, options, f"{Path(config.data).name}-{command}", labeled.notes, make, finish)


def write_labels(path: Path, images: "Images") -> None:
    """Path and label of every image, as `--labels` reads it."""
    from csml.data.cache import atomic_write

    with (
        atomic_write(path) as temporary,
        temporary.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file,
    ):
        writer = csv.writer(file)
        writer.writerow(["path", "label"])
        for id, label in enumerate(images.labels.tolist()):
            writer.writerow([images.name(id), images.classes[label]])
