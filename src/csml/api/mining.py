"""`csml.mine`: pseudo-labels where a fine-tuned classifier is certain, and training on both."""

import logging
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from csml.api.classifiers import classifier_session, train_classifier
from csml.api.data import data_setting, open_splits
from csml.api.run import PathLike, Run, path_of, required_weights
from csml.api.session import Options, continue_options, run_session, start
from csml.api.settings import given, training_config
from csml.config import MineConfig, preset_settings, sources_title
from csml.console import show_log
from csml.data.concat import ConcatImages
from csml.data.image_names import Names
from csml.data.images import UNLABELED, Images, Subset
from csml.data.labels import LabeledData, labels_of_run, write_labels
from csml.data.loading import fabric_for
from csml.data.tables import read_table
from csml.distributed.launch import join_world
from csml.distributed.world import World
from csml.errors import CsmlError
from csml.evaluation.predictions import predict
from csml.files import atomic_write, read_json, write_json
from csml.models.classifier import Classifier
from csml.progress import watched
from csml.runs.directory import RunDirectory
from csml.runs.run_of_weights import directory_of
from csml.weights import load_classifier, network_of

log = logging.getLogger("csml")


@show_log()
def mine(
    weights: "Run | PathLike | None" = None,
    *,
    data: Any = None,
    out: PathLike | None = None,
    preset: str | None = None,
    config: PathLike | None = None,
    resume: "Run | PathLike | None" = None,
    overwrite: bool = False,
    **settings: Any,
) -> Run:
    """Predict the unlabelled images with a fine-tuned classifier, keep certain predictions as labels, train on both.

    Args:
        weights: a run of `finetune`; its labels and test images are used.
        data, out, preset, config, resume, overwrite: as `pretrain`; data defaults to that of the run.
        settings: any setting of `csml mine --help`.
    """
    data, in_memory = data_setting(data, weights)
    settings |= given(data=data, out=out)
    made = mine_config(weights, preset=preset, config=config, resume=resume, **settings)
    return start(run_mine, made, overwrite, resume, in_memory)


def mine_config(weights: "Run | PathLike | None" = None, **call: Any) -> MineConfig:
    """The settings that `mine` would run with, checked."""
    presets = partial(preset_settings, section="mine")
    made = training_config(MineConfig, presets, ("seed",), **given(weights=path_of(weights)), **call)
    start = required_weights(made.weights, "mine")
    load_classifier(start)  # a backbone without classes is refused before anything is written
    return replace(made, model=network_of(start))


def run_mine(config: MineConfig, options: Options, in_memory: Any = None) -> Path:
    """Mine in this process, which may be one of several; returns the run directory."""
    world = join_world(config.hardware)
    start = Path(str(config.weights))
    _, facts = load_classifier(start)
    data = open_splits(world, config.data, config.images, in_memory)
    before = directory_of(start)
    labeled = labels_of_run(data, before.labels, before.tests, tuple(facts["classes"]))
    if not len(labeled.unlabeled):
        raise CsmlError(f"data: every image in {config.data} has a label, so there is nothing to mine")
    with run_session(world, "mine", config, options, f"{sources_title(config.data)}-mine") as session:
        run, weights = session.run, start
        for number in range(1, config.rounds + 1):
            round_run = run.round(number)
            if not world.broadcast(round_run.result("mine").exists):
                log.info("\nround %d of %d", number, config.rounds)
                _round(world, replace(config, out=str(round_run.root)), weights, labeled)
            weights = round_run.root
        if world.is_rank_zero:
            _copy_result(RunDirectory(weights), run)
    return run.root


def _round(world: World, config: MineConfig, start: Path, labeled: LabeledData) -> None:
    """Predict with the classifier at `start`, and train it on labels and pseudo-labels."""
    out = Path(str(config.out))
    run = RunDirectory(out, outer=out.parent)
    options = world.broadcast(lambda: continue_options(run))
    classifier, _ = load_classifier(start)
    if options.resume:
        pseudo, found = _read_pseudo_labels(run, labeled)
    else:
        pseudo, found = _pseudo_labels(classifier, labeled, config)
    both = replace(labeled, train=ConcatImages([labeled.train, pseudo]), notes=())
    with classifier_session(world, "mine", config, options, both) as (session, config):
        if world.is_rank_zero and not session.resumed:
            write_labels(run.pseudo_labels, pseudo)
            write_json(run.mined, found)
        train_classifier(session, config, classifier.train(), both, config.head_lr_per_256, {"mined": found})


def _copy_result(last: RunDirectory, run: RunDirectory) -> None:
    """Copy the result of the last round, so that the run can be used like any other."""
    weights = [(last.classifier, run.classifier), (last.best_classifier, run.best_classifier)]
    for source, target in (*weights, (last.backbone, run.backbone), (last.result("mine"), run.result("mine"))):
        if source.exists():
            with atomic_write(target) as temporary:
                shutil.copyfile(source, temporary)


def _pseudo_labels(classifier: Classifier, labeled: LabeledData, config: MineConfig) -> tuple[Images, dict[str, Any]]:
    """Unlabelled images with a sufficiently certain prediction as their label; and their number and accuracy."""
    classes, images = labeled.train.classes, Subset(labeled.images, labeled.unlabeled)
    fabric = fabric_for(images, config.images.workers, config.hardware)
    total = -(-len(images) // 256)
    batches = list(watched(predict(classifier, images, config.images, fabric), "predicting", total=total))
    labels = torch.cat([batch.labels for batch in batches]).numpy()
    entropies = torch.cat([batch.entropies for batch in batches]).numpy()
    good = torch.cat([batch.good for batch in batches]).numpy()
    kept = np.flatnonzero(good & (entropies <= config.max_entropy))
    if not len(kept):
        raise CsmlError(
            f"max_entropy: no prediction is as certain as {config.max_entropy:g} nats; the most certain has "
            f"{entropies[good].min():.2f}; raise it, or fine-tune longer"
        )
    counts = np.bincount(labels[kept], minlength=len(classes))
    found: dict[str, Any] = {
        "unlabeled": len(images),
        "kept": len(kept),
        "kept_per_class": dict(zip(classes, counts.tolist(), strict=True)),
    }
    log.info("%d of %d predictions have an entropy of at most %g nats", len(kept), len(images), config.max_entropy)
    known = images.labels[kept] != UNLABELED
    if labeled.images.classes == classes and known.any():  # true labels exist and were not used
        right, predicted = (images.labels[kept] == labels[kept])[known], labels[kept][known]
        found["right"] = float(right.mean())
        found["right_per_class"] = {
            name: float(right[predicted == label].mean()) if (predicted == label).any() else None
            for label, name in enumerate(classes)
        }
        log.info("%.1f %% of them are right", 100 * found["right"])
    return Subset(images, kept, labels[kept], classes), found


def _read_pseudo_labels(run: RunDirectory, labeled: LabeledData) -> tuple[Images, dict[str, Any]]:
    """Pseudo-labels of an interrupted round: predicted only once, even if another machine continues it."""
    images, classes = Subset(labeled.images, labeled.unlabeled), labeled.train.classes
    names = Names(images)
    rows = [(names.find(name), classes.index(label)) for _, name, label in read_table(run.pseudo_labels)]
    ids, labels = np.array([id for id, _ in rows]), np.array([label for _, label in rows])
    return Subset(images, ids, labels, classes), read_json(run.mined)
