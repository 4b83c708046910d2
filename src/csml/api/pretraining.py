"""`csml.pretrain`: learn a backbone from images without labels."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from csml.api.auto_preset import choose_preset, explain, is_automatic
from csml.api.data import data_setting, open_splits
from csml.api.pretraining_evaluation import evaluate_baselines, evaluate_run, store_features
from csml.api.run import PathLike, Run, path_of
from csml.api.session import Options, Session, device_for, run_session, start, train, with_resolved_hardware
from csml.api.settings import given, training_config
from csml.config import (
    DEFAULT_FRAMEWORK,
    PretrainConfig,
    check_against_data,
    fitted_to_data,
    flatten,
    preset_settings,
    read_yaml,
    settings_from_weights,
    sources_title,
)
from csml.console import show_log
from csml.data.open import DataSplits, open_data
from csml.distributed.launch import join_world
from csml.distributed.world import World
from csml.training.pretraining import Pretraining
from csml.weights import load_backbone, network_of, save_backbone

log = logging.getLogger("csml")


@show_log()
def pretrain(
    data: Any = None,
    out: PathLike | None = None,
    *,
    preset: str | None = None,
    config: PathLike | None = None,
    weights: "Run | PathLike | None" = None,
    resume: "Run | PathLike | None" = None,
    overwrite: bool = False,
    **settings: Any,
) -> Run:
    """Learn a backbone from images without labels; labels, if there are any, only serve for evaluation.

    Args:
        data: a folder of images or a list of folders, a pattern, a list file, tar files, a pack, `synthetic`,
            `cifar10`, … (docs/data.md); or images in memory: a uint8 array `(N, H, W, 3)`, a tuple of array and labels,
            a `torch.utils.data.Dataset` of images, or a `datasets.Dataset`.
        out: the run directory; by default the next free runs/NAME-001.
        preset: named settings, such as `photos`. For a folder and without `config`, the default is `auto`: the preset
            is chosen from the images and the machine.
        config: a YAML file of settings, laid over the preset.
        weights: a backbone to start from: a run, a weight file, `timm:NAME` or `lite0`; same as `model.weights`.
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
    settings |= given(**{"model.weights": path_of(weights)})
    made = pretrain_config(data, out, preset=preset, config=config, resume=resume, needs_data=True, **settings)
    given_keys = {
        **({} if config is None else flatten(read_yaml(Path(config).expanduser()) or {})),
        **flatten(settings),
    }
    return start(partial(_run_fitted, frozenset(given_keys)), made, overwrite, resume, in_memory)


def pretrain_config(data: str | None = None, out: PathLike | None = None, **call: Any) -> PretrainConfig:
    """The settings that `pretrain` would run with, checked."""
    call |= given(data=data, out=out)
    if call.get("resume") is not None:  # the run has its network and a copy of the weights it started from
        return training_config(PretrainConfig, preset_settings, **call)
    if not is_automatic(call.get("preset"), call.get("config"), data):
        chosen = partial(_settings_for_weights, call.get("preset"))
        return _with_network(training_config(PretrainConfig, preset_settings, chosen=chosen, **call))
    call["preset"] = None
    plain = training_config(PretrainConfig, preset_settings, **call)
    train = open_data(plain.data, plain.images).train
    choice = choose_preset(train, plain.hardware)
    call["preset"] = choice.preset

    def chosen_for_data(everything: Mapping[str, Any]) -> dict[str, Any]:
        return {**_settings_for_weights(choice.preset, everything), **choice.settings}

    made = _with_network(training_config(PretrainConfig, preset_settings, chosen=chosen_for_data, **call))
    explain(choice, made, len(train), call)
    return made


def _settings_for_weights(preset: str | None, everything: Mapping[str, Any]) -> dict[str, Any]:
    """The settings for a start from weights; empty without weights."""
    if everything.get("model.weights") is None:
        return {}
    return settings_from_weights(everything.get("framework", DEFAULT_FRAMEWORK), preset)


def _with_network(config: PretrainConfig) -> PretrainConfig:
    """The settings with the backbone that the weights belong to."""
    if config.model.weights is None:
        return config
    network = network_of(config.model.weights)
    return replace(config, model=replace(config.model, backbone=network.backbone, small_images=network.small_images))


def run_pretrain(config: PretrainConfig, options: Options, in_memory: Any = None) -> Path:
    """Train in this process, which may be one of several; returns the run directory."""
    world = join_world(config.hardware)
    return _train_on(open_splits(world, config.data, config.images, in_memory), world, config, options)


def _run_fitted(given_keys: frozenset[str], config: PretrainConfig, options: Options, in_memory: Any = None) -> Path:
    """Like `run_pretrain`, but adapts a preset made for more images than there are; settings in `given_keys` stay."""
    world = join_world(config.hardware)
    data = open_splits(world, config.data, config.images, in_memory)
    fitted = fitted_to_data(config, len(data.train), given_keys)
    for key, before, now in (
        ("batch_size", config.batch_size, fitted.batch_size),
        ("neighbors.k", config.neighbors.k, fitted.neighbors.k),
    ):
        if now != before:
            log.info("%s: %d instead of %d, because there are %d images", key, now, before, len(data.train))
    return _train_on(data, world, fitted, options)


def _train_on(data: DataSplits, world: World, config: PretrainConfig, options: Options) -> Path:
    check_against_data(config, len(data.train))
    name = f"{sources_title(config.data)}-{config.method.run_name(config.views.cross_sample)}"
    with run_session(world, "pretrain", config, options, name, data.notes) as session:
        config = with_resolved_hardware(session, config)
        fabric = device_for(data.train, config)
        if config.model.weights:
            _keep_start(session, config)
        _warn_about_neighbors(config)
        evaluate_baselines(session.run, config, data, fabric)
        task = Pretraining(config, data, session.run, fabric)
        train(session, task, config, fabric)
        task.save_best_point()
        evaluate_run(session.run, config, data, fabric)
        store_features(session.run, config, data, fabric)
    return session.run.root


def _keep_start(session: Session, config: PretrainConfig) -> None:
    """Copy the starting weights into the run directory, for resuming and for comparison."""
    start = session.run.start
    if session.world.is_rank_zero and not start.exists():
        backbone = load_backbone(str(config.model.weights), config.images.channels)
        save_backbone(start, backbone, config.model, config.images)
        log.info("starts from %s (%s)", config.model.weights, config.model.backbone)
    session.world.barrier()


def _warn_about_neighbors(config: PretrainConfig) -> None:
    settings = config.neighbors
    if config.views.cross_sample and settings.k > 0 and settings.warmup_epochs >= config.epochs:
        log.warning(
            "neighbors.warmup_epochs: %d, so a run of %d epochs never uses a neighbour; choose less",
            settings.warmup_epochs,
            config.epochs,
        )
