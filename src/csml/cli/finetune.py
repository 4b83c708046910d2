"""`csml finetune WEIGHTS`: a pre-trained backbone and a few labels to a classifier."""

from functools import partial

from csml.cli.supervised import open_labels, train_classifier
from csml.cli.training import Options
from csml.cli.training import parse as parse_training
from csml.config.checks import check_supervised
from csml.config.presets import preset_settings
from csml.config.schema import FinetuneConfig
from csml.errors import CsmlError

_SUMMARY = "Train all layers of a pre-trained network on a few labels, and test it."


def run(arguments: list[str]) -> int:
    """Parse, check, train."""
    return finetune(*parse(arguments))


def parse(arguments: list[str]) -> tuple[FinetuneConfig, Options]:
    return parse_training(
        "finetune",
        FinetuneConfig,
        _SUMMARY,
        arguments,
        check_supervised,
        preset=partial(preset_settings, section="finetune"),
        from_weights=True,
    )


def finetune(config: FinetuneConfig, options: Options | None = None) -> int:
    """Carry out a checked config; returns the exit code."""
    import torch

    from csml.models.classifier import Classifier
    from csml.weights import load_backbone, network_of

    if config.weights is None:
        raise CsmlError("weights: give what to start from: csml finetune RUN")
    config.model = network_of(config.weights)
    labeled = open_labels(config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        classifier = Classifier(load_backbone(config.weights).train(), len(labeled.train.classes))
    return train_classifier("finetune", config, options or Options(), classifier, labeled, config.head_lr_per_256)
