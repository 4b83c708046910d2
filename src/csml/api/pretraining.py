"""`csml.pretrain`: learn a backbone from images without labels."""

import logging
from pathlib import Path
from typing import Any

from csml.api.data import data_setting, open_splits
from csml.api.run import PathLike, Run
from csml.api.session import Options, device_for, run_session, start, train
from csml.api.settings import given, training_config
from csml.config import PretrainConfig, check_against_data, preset_settings, sources_title
from csml.console import show_log
from csml.distributed.launch import join_world
from csml.training.pretraining import Pretraining

log = logging.getLogger("csml")


@show_log()
def pretrain(
    data: Any = None,
    out: PathLike | None = None,
    *,
    preset: str | None = None,
    config: PathLike | None = None,
    resume: "Run | PathLike | None" = None,
    overwrite: bool = False,
    **settings: Any,
) -> Run:
    """Learn a backbone from images without labels; labels, where they exist, only measure.

    Args:
        data: a folder of images or a list of folders, a pattern, a list file, tar files, a pack, `synthetic`,
            `cifar10`, … (docs/data.md); or images in memory: a uint8 array `(N, H, W, 3)`, a tuple of array and labels,
            a `torch.utils.data.Dataset` of images, or a `datasets.Dataset`.
        out: the run directory; by default the next free runs/NAME-001.
        preset: named settings, such as `photos`.
        config: a YAML file of settings, laid over the preset.
        resume: a run, or its directory, to continue exactly where it stopped.
        overwrite: delete the run in `out` first.
        settings: any setting of `csml pretrain --help`, nested, `neighbors={"k": 5}`, or dotted,
            `**{"neighbors.k": 5}`.

    Returns:
        The finished run.

    Raises:
        CsmlError: a setting or the data is wrong; one line that says what would be right.
        Interrupted: Ctrl-C or the stop button; the run was saved and can be resumed.
    """
    data, in_memory = data_setting(data)
    made = pretrain_config(data, out, preset=preset, config=config, resume=resume, needs_data=True, **settings)
    return start(run_pretrain, made, overwrite, resume, in_memory)


def pretrain_config(data: str | None = None, out: PathLike | None = None, **call: Any) -> PretrainConfig:
    """The settings that `pretrain` would run with, checked."""
    return training_config(PretrainConfig, preset_settings, **given(data=data, out=out), **call)


def run_pretrain(config: PretrainConfig, options: Options, in_memory: Any = None) -> Path:
    """Train in this process, which may be one of several; returns the run directory."""
    world = join_world(config.hardware)
    data = open_splits(world, config.data, config.images, in_memory)
    check_against_data(config, len(data.train))
    name = f"{sources_title(config.data)}-{config.method.run_name(config.views.cross_sample)}"
    with run_session(world, "pretrain", config, options, name, data.notes) as session:
        fabric = device_for(data.train, config)
        _warn_about_neighbors(config)
        train(session, Pretraining(config, data, session.run, fabric), config, fabric)
    return session.run.root


def _warn_about_neighbors(config: PretrainConfig) -> None:
    settings = config.neighbors
    if config.views.cross_sample and settings.k > 0 and settings.warmup_epochs >= config.epochs:
        log.warning(
            "neighbors.warmup_epochs: %d, so a run of %d epochs never uses a neighbour; choose less",
            settings.warmup_epochs,
            config.epochs,
        )
