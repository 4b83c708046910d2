"""`csml pretrain`: settings in, run directory out."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from csml.cli.training import Options, how_to_use, train
from csml.cli.training import parse as parse_training
from csml.config.checks import check_against_data, check_pretrain
from csml.config.schema import PretrainConfig

if TYPE_CHECKING:
    from csml.training.loop import TrainingLoop
    from csml.training.run_directory import RunDirectory

log = logging.getLogger("csml")

_SUMMARY = "Learn a backbone from images without labels; where labels exist they only measure."


def run(arguments: list[str]) -> int:
    """Parse, check, train."""
    return pretrain(*parse(arguments))


def parse(arguments: list[str]) -> tuple[PretrainConfig, Options]:
    return parse_training("pretrain", PretrainConfig, _SUMMARY, arguments, check_pretrain)


def pretrain(config: PretrainConfig, options: Options | None = None) -> int:
    """Carry out a checked config; returns the exit code."""
    from csml.data.open import open_data
    from csml.training.pretraining import Pretraining

    data = open_data(config.data, config.images)
    check_against_data(config, len(data.train))

    def make(run: "RunDirectory") -> "TrainingLoop":
        if config.framework == "contrast":
            _warn_about_queue(config, len(data.train))
        _warn_about_neighbors(config)
        return Pretraining(config, data, run)

    def finish(loop: "TrainingLoop") -> None:
        log.info(how_to_use(loop.run.root, labeled=data.val is not None))

    return train(config, options or Options(), _run_name(config), data.notes, make, finish)


def _run_name(config: PretrainConfig) -> str:
    single = "moco-v2" if config.framework == "contrast" else "byol"
    cross = "csml" if config.framework == "contrast" else "csml-byol"
    return f"{Path(config.data).name}-{cross if config.views.cross_sample else single}"


def _warn_about_queue(config: PretrainConfig, images: int) -> None:
    from csml.training.build import queue_length

    length = queue_length(config, images)
    if length >= images and not config.contrast.mask_known:
        log.warning(
            "contrast.queue_length: %d is as long as the data set (%d images), so that an image's own past key becomes "
            "its negative; choose less than half of it, or --contrast.mask_known true",
            length,
            images,
        )


def _warn_about_neighbors(config: PretrainConfig) -> None:
    settings = config.neighbors
    if config.views.cross_sample and settings.k > 0 and settings.warmup_epochs >= config.epochs:
        log.warning(
            "neighbors.warmup_epochs: %d, so that a run of %d epochs never uses a neighbour; choose less",
            settings.warmup_epochs,
            config.epochs,
        )
