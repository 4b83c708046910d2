"""`csml.supervised` and `csml.finetune`: train a classifier on labels, from scratch or from a backbone."""

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from csml.api.data import data_setting, open_splits
from csml.api.few_labels import learn_few_labels
from csml.api.run import PathLike, Run, path_of, required_weights
from csml.api.session import Options, Session, device_for, run_session, start, train, with_resolved_hardware
from csml.api.settings import given, training_config
from csml.config import (
    ClassifierConfig,
    FinetuneConfig,
    SupervisedConfig,
    check_against_data,
    preset_settings,
    sources_title,
)
from csml.console import show_log
from csml.data.labels import HELD_OUT, LabeledData, choose_labels, write_labels
from csml.distributed.launch import join_world
from csml.distributed.world import World
from csml.files import write_json
from csml.models.backbones import build_backbone
from csml.models.classifier import Classifier
from csml.training.build import seeded
from csml.training.classification import Classification
from csml.weights import load_backbone, network_of

log = logging.getLogger("csml")

C = TypeVar("C", bound=ClassifierConfig)

_SHARED_WITH_PRETRAINING = ("data", "epochs", "batch_size", "images.", "model.backbone", "model.small_images")


@show_log()
def supervised(
    data: Any = None,
    out: PathLike | None = None,
    *,
    preset: str | None = None,
    config: PathLike | None = None,
    resume: "Run | PathLike | None" = None,
    overwrite: bool = False,
    **settings: Any,
) -> Run:
    """Train the same network on the same images with their labels: the baseline of pre-training.

    Arguments as `pretrain`; settings as `csml supervised --help`.
    """
    data, in_memory = data_setting(data)
    made = supervised_config(data, out, preset=preset, config=config, resume=resume, needs_data=True, **settings)
    return start(run_supervised, made, overwrite, resume, in_memory)


def supervised_config(data: str | None = None, out: PathLike | None = None, **call: Any) -> SupervisedConfig:
    """The settings that `supervised` would run with, checked."""
    return training_config(SupervisedConfig, _supervised_preset, **given(data=data, out=out), **call)


def _supervised_preset(name: str) -> dict[str, Any]:
    """The network and data of pre-training, overridden by the preset's section for this verb."""
    shared = {key: value for key, value in preset_settings(name).items() if key.startswith(_SHARED_WITH_PRETRAINING)}
    return shared | preset_settings(name, "supervised")


def run_supervised(config: SupervisedConfig, options: Options, in_memory: Any = None) -> Path:
    """Train in this process, which may be one of several; returns the run directory."""
    world = join_world(config.hardware)
    labeled = _open_labels(world, config, in_memory)
    with seeded(config.seed):
        backbone = build_backbone(config.model.backbone, config.model.small_images, config.images.channels)
        classifier = Classifier(backbone, len(labeled.train.classes))
    with classifier_session(world, "supervised", config, options, labeled) as (session, config):
        train_classifier(session, config, classifier, labeled)
    return session.run.root


@show_log()
def finetune(
    weights: "Run | PathLike | None" = None,
    *,
    labels: PathLike | None = None,
    data: Any = None,
    out: PathLike | None = None,
    preset: str | None = None,
    config: PathLike | None = None,
    resume: "Run | PathLike | None" = None,
    overwrite: bool = False,
    **settings: Any,
) -> Run:
    """Make a classifier from a pre-trained network and a few labels, and test it.

    By default (`how="auto"`), cross-validation on the labels chooses the method, and the probabilities are calibrated.

    Args:
        weights: a run, its directory, or a weight file of csml or another trainer.
        labels: a CSV or JSON-lines file of path and label; by default the names of the class folders.
        data, out, preset, config, resume, overwrite: as `pretrain`; data defaults to that of the run.
        settings: any setting of `csml finetune --help`.
    """
    data, in_memory = data_setting(data, weights)
    settings |= given(labels=labels, data=data, out=out)
    made = finetune_config(weights, preset=preset, config=config, resume=resume, **settings)
    return start(run_finetune, made, overwrite, resume, in_memory)


def finetune_config(weights: "Run | PathLike | None" = None, **call: Any) -> FinetuneConfig:
    """The settings that `finetune` would run with, checked."""
    presets = partial(preset_settings, section="finetune")
    made = training_config(FinetuneConfig, presets, **given(weights=path_of(weights)), **call)
    return replace(made, model=network_of(required_weights(made.weights, "finetune")))


def run_finetune(config: FinetuneConfig, options: Options, in_memory: Any = None) -> Path:
    """Train in this process, which may be one of several; returns the run directory."""
    world = join_world(config.hardware)
    labeled = _open_labels(world, config, in_memory)
    if config.how != "paper":
        with classifier_session(world, "finetune", config, options, labeled) as (session, config):
            learn_few_labels(session, config, labeled)
        return session.run.root
    with seeded(config.seed):
        classifier = Classifier(
            load_backbone(str(config.weights), config.images.channels).train(), len(labeled.train.classes)
        )
    with classifier_session(world, "finetune", config, options, labeled) as (session, config):
        train_classifier(session, config, classifier, labeled, config.head_lr_per_256)
    return session.run.root


def _open_labels(world: World, config: SupervisedConfig, in_memory: Any) -> LabeledData:
    """Open the labelled images of a config."""
    data = open_splits(world, config.data, config.images, in_memory)
    validated = isinstance(config, FinetuneConfig) and config.how != "paper"  # by cross-validation
    holdout = HELD_OUT if config.holdout is None and not validated else config.holdout
    return choose_labels(data, config.labels, config.list, config.fraction, holdout, config.seed, config.per_class)


@contextlib.contextmanager
def classifier_session(
    world: World, verb: str, config: C, options: Options, labeled: LabeledData
) -> Iterator[tuple[Session, C]]:
    """A run directory that records the training and test images, and the settings adapted to the data."""
    images = len(labeled.train)
    if config.batch_size > images:
        log.info("batch_size: %d, all labelled images, instead of %d", images, config.batch_size)
        config = replace(config, batch_size=images)
    check_against_data(config, images)
    with run_session(world, verb, config, options, f"{sources_title(config.data)}-{verb}", labeled.notes) as session:
        if world.is_rank_zero:
            for path, split in ((session.run.labels, labeled.train), (session.run.tests, labeled.val)):
                if split is not None and not path.exists():
                    write_labels(path, split)
        yield session, config


def train_classifier(
    session: Session,
    config: ClassifierConfig,
    classifier: Classifier,
    labeled: LabeledData,
    head_lr_per_256: float | None = None,
    facts: dict[str, Any] | None = None,
) -> None:
    """Train and test a classifier; `facts` go into the result file."""
    config = with_resolved_hardware(session, config)
    fabric = device_for(labeled.train, config)
    head_lr = None if head_lr_per_256 is None else head_lr_per_256 * config.batch_size / 256
    run, verb = session.run, session.verb
    task = Classification(verb, config, classifier, labeled.train, labeled.val, run, fabric, head_lr)
    train(session, task, config, fabric)
    result: dict[str, Any] = {"data": config.data, "epochs": config.epochs, "labels": len(labeled.train)}
    result |= facts or {}
    if labeled.val is not None:
        result |= {"classes": labeled.train.classes, **task.test(), "best_top1": task.best}
    if session.world.is_rank_zero:
        write_json(run.result(verb), result)
