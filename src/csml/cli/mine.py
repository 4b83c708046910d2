"""`csml mine RUN`: labels for the unlabelled, where the fine-tuned model is sure of them, and training on both."""

import json
import logging
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from csml.cli.supervised import train_classifier, write_labels
from csml.cli.training import Options, begin, continue_options, write_config
from csml.cli.training import parse as parse_training
from csml.config.checks import check_mine
from csml.config.presets import preset_settings
from csml.config.schema import MineConfig
from csml.errors import CsmlError

if TYPE_CHECKING:
    from csml.data.images import Images
    from csml.data.labels import LabeledData
    from csml.models.classifier import Classifier

log = logging.getLogger("csml")

_SUMMARY = "Predict what is unlabelled with a fine-tuned model, keep what it is sure of, and train on both."
_RESULT = ("classifier.safetensors", "best.safetensors", "backbone.safetensors", "mine.json")


def run(arguments: list[str]) -> int:
    """Parse, check, mine."""
    return mine(*parse(arguments))


def parse(arguments: list[str]) -> tuple[MineConfig, Options]:
    return parse_training(
        "mine",
        MineConfig,
        _SUMMARY,
        arguments,
        check_mine,
        preset=partial(preset_settings, section="mine"),
        from_weights=True,
        inherits=("seed",),
    )


def mine(config: MineConfig, options: Options | None = None) -> int:
    """Carry out a checked config; returns the exit code."""
    from csml.data.labels import labels_of_run
    from csml.data.open import open_data
    from csml.training.launch import join_world
    from csml.weights import load_classifier, network_of

    options = options or Options()
    if config.weights is None:
        raise CsmlError("weights: give the fine-tuned run to start from: csml mine RUN")
    start = Path(config.weights)
    _, facts = load_classifier(start)
    config.model = network_of(start)
    data = open_data(config.data, config.images)
    labeled = labels_of_run(data, start if start.is_dir() else start.parent, tuple(facts["classes"]))
    if not len(labeled.unlabeled):
        raise CsmlError(f"data: every image in {config.data} has a label, so there is nothing to mine")
    name = f"{Path(config.data).name}-mine"
    world = join_world(config.hardware)
    run, _ = begin(world, config.out, options, name)
    if world.first:
        write_config(run, config)
    log.info("run directory %s", run.root)
    before = start
    for number in range(1, config.rounds + 1):
        out = run.root / f"round-{number}"
        if not world.told_by_first((out / "mine.json").exists):
            log.info("\nround %d of %d", number, config.rounds)
            classifier, _ = load_classifier(before)
            code = _round(replace(config, out=str(out)), run.root, classifier, labeled)
            if code:
                return code
        before = out
    for file in _RESULT:  # so that the whole is a run to be used as any other
        if world.first and (before / file).exists():
            shutil.copyfile(before / file, run.root / file)
    return 0


def _round(config: MineConfig, root: Path, classifier: "Classifier", labeled: "LabeledData") -> int:
    from csml.data.joined import Joined

    out = Path(str(config.out))
    options = continue_options(out)
    pseudo, found = _read_pseudo_labels(out, labeled) if options.resume else _pseudo_labels(classifier, labeled, config)
    both = replace(labeled, train=Joined([labeled.train, pseudo]), notes=())

    def saved(directory: Path) -> None:
        write_labels(directory / "pseudo_labels.csv", pseudo)
        (directory / "mined.json").write_text(json.dumps(found, indent=2) + "\n")

    return train_classifier(
        "mine", config, options, classifier.train(), both, config.head_lr_per_256, root, {"mined": found}, saved
    )


def _pseudo_labels(
    classifier: "Classifier", labeled: "LabeledData", config: MineConfig
) -> tuple["Images", dict[str, Any]]:
    """The unlabelled images whose prediction is certain enough, labelled by it; how many, and how many are right."""
    import numpy as np
    import torch

    from csml.data.images import UNLABELED, Subset
    from csml.evaluation.predictions import predict
    from csml.progress import watched
    from csml.training.device import build_fabric

    classes, images = labeled.train.classes, Subset(labeled.images, labeled.unlabeled)
    fabric = build_fabric(config.hardware, images, config.images.workers)
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
    told = images.labels[kept] != UNLABELED
    if labeled.images.classes == classes and told.any():  # the truth is known, and was not used
        right, of = (images.labels[kept] == labels[kept])[told], labels[kept][told]
        found["right"] = float(right.mean())
        found["right_per_class"] = {
            name: float(right[of == label].mean()) if (of == label).any() else None
            for label, name in enumerate(classes)
        }
        log.info("%.1f %% of them are right", 100 * found["right"])
    return Subset(images, kept, labels[kept], classes), found


def _read_pseudo_labels(out: Path, labeled: "LabeledData") -> tuple["Images", dict[str, Any]]:
    """Of a round that was cut off: predicted once, whatever the machine it goes on with."""
    import numpy as np

    from csml.data.images import Subset
    from csml.data.labels import Names, read_table

    images, classes = Subset(labeled.images, labeled.unlabeled), labeled.train.classes
    names = Names(images)
    rows = [(names.find(name), classes.index(label)) for _, name, label in read_table(out / "pseudo_labels.csv")]
    ids, labels = np.array([id for id, _ in rows]), np.array([label for _, label in rows])
    return Subset(images, ids, labels, classes), json.loads((out / "mined.json").read_text())
