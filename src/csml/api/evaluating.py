"""`csml.knn` and `csml.linear`: evaluate the features of a backbone with labels it was not trained on."""

import logging
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from lightning_fabric import Fabric

from csml.api.data import data_setting, labeled_splits
from csml.api.processes import in_processes
from csml.api.run import PathLike, Run, path_of, run_in_use
from csml.api.session import device_for
from csml.api.settings import given, using_config
from csml.config import PIXELS, KnnConfig, LinearConfig, as_settings, flatten, preset_settings
from csml.console import show_log
from csml.data.images import Images
from csml.distributed.launch import join_world
from csml.distributed.world import world_of
from csml.evaluation.baseline_comparison import shortfall
from csml.evaluation.baselines import CHANCE, Baselines, baselines_of_weights
from csml.evaluation.knn import evaluate_knn
from csml.files import read_json, write_json
from csml.models.backbones import Backbone
from csml.runs.checkpoint import remove_checkpoints
from csml.runs.directory import RunDirectory, probe_directory
from csml.runs.locks import only_writers
from csml.runs.run_of_weights import result_file
from csml.runs.settings import OF_THE_MACHINE, first_difference
from csml.training.linear import LinearProbe, fit_probe
from csml.weights import load_backbone, weights_digest

log = logging.getLogger("csml")


@dataclass(frozen=True)
class KnnResult:
    """kNN accuracy: the share of test images that the vote of their nearest training images labels correctly."""

    accuracy: dict[int, float]
    """number of neighbours → accuracy"""
    baselines: dict[str, dict[int, float]]
    """accuracy of the baselines: chance, pixels, untrained, start"""
    trained_on: int
    tested: int
    failed: int
    """images that could not be read"""
    path: Path
    """the result file"""


@dataclass(frozen=True)
class LinearResult:
    """Accuracy of a linear classifier on frozen features, by stage."""

    top1: dict[int, float]
    """stage → accuracy"""
    top5: dict[int, float]
    per_class: dict[int, dict[str, float | None]]
    baselines: dict[str, dict[int, float]]
    """top-1 accuracy of the baselines by stage: chance and, where cheap, untrained and start"""
    path: Path
    """the result file"""


@show_log()
def knn(weights: "Run | PathLike", *, data: Any = None, config: PathLike | None = None, **settings: Any) -> KnnResult:
    """Classify test images by the weighted vote of their nearest training images.

    Args:
        weights: a run, its directory, a weight file of csml or another trainer, or a name: lite0, timm:NAME, or,
            as a baseline, pixels, random or random:NAME.
        data: labelled images; by default those of the run.
        config: a YAML file of settings.
        settings: any setting of `csml knn --help`.
    """
    data, in_memory = data_setting(data, weights)
    made = knn_config(weights, config=config, **given(data=data), **settings)
    return in_processes(run_knn, made.hardware, str(path_of(weights)), made, in_memory)


def knn_config(weights: "Run | PathLike", *, config: PathLike | None = None, **settings: Any) -> KnnConfig:
    """The settings that `knn` would run with, checked."""
    return using_config(KnnConfig, str(path_of(weights)), settings, config=config)


def run_knn(weights: str, config: KnnConfig, in_memory: Any = None) -> KnnResult:
    """Evaluate in this process, which may be one of several."""
    world = join_world(config.hardware)
    backbone = load_backbone(weights, config.images.channels)  # a wrong name is reported before the data is opened
    train, val = labeled_splits(world, config.data, config.images, in_memory)
    with run_in_use(weights):
        result = evaluate_weights(weights, backbone, train, val, config, device_for(train, config, backbone))
    warn_below(weights, result)
    return result


def evaluate_weights(
    weights: str,
    backbone: Backbone,
    train: Images,
    val: Images,
    config: KnnConfig,
    fabric: Fabric,
    quiet: bool = False,
) -> KnnResult:
    """Evaluate weights by kNN accuracy, compare them with the baselines, and write the result.

    Args:
        weights: a run, a weight file or a name: names the result and where it is written.
        backbone: the network with these weights.
        train, val: labelled images that vote, and those that are classified.
        config: checked settings.
        fabric: device, precision and processes.
        quiet: do not log images that cannot be read.
    """
    result = evaluate_knn(backbone, train, val, config, fabric, quiet=quiet)
    if config.baselines:
        found = baselines_of_weights(weights, train, val)
        result["baselines"] = found.by_knn(config, fabric)
        for note in found.notes:
            log.info(note)
    path = result_path(weights, config.output, "knn")
    if world_of(fabric).is_rank_zero:
        write_result(path, weights, config, result)
        log.info("written to %s", path)
    beside = result.get("baselines", {}).get("accuracy", {})
    return KnnResult(
        _by_number(result["accuracy"]),
        {name: _by_number(shares) for name, shares in beside.items()},
        result["trained_on"],
        result["tested"],
        result["failed"],
        path,
    )


def warn_below(weights: str, result: KnnResult) -> None:
    """Log a warning if a baseline is better for the first number of neighbours."""
    k, accuracy = next(iter(result.accuracy.items()))
    scores = {name: shares[k] for name, shares in result.baselines.items()}
    _warn(weights, f"{k}-NN", accuracy, scores, result.tested)


def _by_number(shares: dict[str, float]) -> dict[int, float]:
    return {int(k): share for k, share in shares.items()}


def _warn(weights: str, measure: str, accuracy: float, scores: dict[str, float], tested: int) -> None:
    if line := shortfall(weights, measure, accuracy, scores, tested):
        log.warning(line)


@show_log()
def linear(
    weights: "Run | PathLike",
    *,
    data: Any = None,
    preset: str | None = None,
    config: PathLike | None = None,
    resume: bool = False,
    **settings: Any,
) -> LinearResult:
    """Train a linear classifier on frozen features of each stage, and test it.

    Args:
        weights: a run, its directory, a weight file of csml or another trainer, or a name: lite0, timm:NAME, or,
            as a baseline, pixels, random or random:NAME.
        data: labelled images; by default those of the run.
        preset: the preset of the pre-training, which has the learning rate for its network.
        config: a YAML file of settings.
        resume: continue where an interrupted call stopped.
        settings: any setting of `csml linear --help`.
    """
    data, in_memory = data_setting(data, weights)
    made = linear_config(weights, preset=preset, config=config, **given(data=data), **settings)
    return in_processes(run_linear, made.hardware, str(path_of(weights)), made, resume, in_memory)


def linear_config(
    weights: "Run | PathLike",
    *,
    preset: str | None = None,
    config: PathLike | None = None,
    resume: bool = False,
    **settings: Any,
) -> LinearConfig:
    """The settings that `linear` would run with, checked."""
    named = preset_settings(preset, "linear") if preset is not None else None
    return using_config(LinearConfig, str(path_of(weights)), settings, preset=named, config=config)


def run_linear(weights: str, config: LinearConfig, resume: bool | None = False, in_memory: Any = None) -> LinearResult:
    """Evaluate in this process, which may be one of several; resume None: continue if there is a checkpoint."""
    world, backbone = join_world(config.hardware), load_backbone(weights, config.images.channels)
    train, val = labeled_splits(world, config.data, config.images, in_memory)
    path = result_path(weights, config.output, "linear")
    fabric = device_for(train, config, backbone)
    with run_in_use(weights), only_writers(world, probe_directory(path).root):
        probe = LinearProbe(config, backbone, train, val, probe_directory(path), fabric)
        result = fit_probe(probe, resume)
        if world.is_rank_zero:
            write_result(path, weights, config, result)
        if config.baselines:
            scores = _linear_baselines(weights, train, val, config, fabric, path)
            result["baselines"] = {"top1": scores}
            last = str(max(config.stages))
            top1 = {name: by_stage[last] for name, by_stage in scores.items()}
            _warn(weights, "linear top-1", result["stages"][last]["top1"], top1, result["tested"])
            if world.is_rank_zero:
                write_result(path, weights, config, result)
        if world.is_rank_zero:
            remove_checkpoints(probe.run.checkpoints)
    log.info("written to %s", path)
    stages = {int(stage): scores for stage, scores in result["stages"].items()}
    beside = result.get("baselines", {}).get("top1", {})
    return LinearResult(
        {stage: scores["top1"] for stage, scores in stages.items()},
        {stage: scores["top5"] for stage, scores in stages.items()},
        {stage: scores["per_class"] for stage, scores in stages.items()},
        {name: _by_number(shares) for name, shares in beside.items()},
        path,
    )


def _linear_baselines(
    weights: str, train: Images, val: Images, config: LinearConfig, fabric: Fabric, path: Path
) -> dict[str, dict[str, float]]:
    """Baseline → stage → top-1: the largest class and, if features are computed once, networks with the same probe."""
    found = baselines_of_weights(weights, train, val)
    scores = {CHANCE: dict.fromkeys(map(str, config.stages), found.chance())}
    if config.augment:
        return scores
    settings = [item for item in flatten(as_settings(config)).items() if not item[0].startswith(OF_THE_MACHINE)]
    for name in found.references:
        if name == PIXELS:  # pixels would need a learning rate of their own
            continue
        run = RunDirectory(probe_directory(path).root / name)
        evaluate = partial(_top1, config, found, run, fabric)
        scores[name] = found.score(name, ("linear", settings), evaluate, fabric)
    return scores


def _top1(
    config: LinearConfig, found: Baselines, run: RunDirectory, fabric: Fabric, backbone: Backbone
) -> dict[str, float]:
    """Stage → top-1 of a baseline."""
    stages = fit_probe(LinearProbe(config, backbone, found.train, found.val, run, fabric))["stages"]
    if world_of(fabric).is_rank_zero:
        remove_checkpoints(run.checkpoints)
    return {stage: scores["top1"] for stage, scores in stages.items()}


def result_path(weights: str, output: str | None, name: str) -> Path:
    """`output`, else the result file of the run, else one beside the weight file, or, for a name, in this folder."""
    return Path(output).expanduser() if output else result_file(weights, name)


def write_result(path: Path, weights: str, config: KnnConfig | LinearConfig, result: dict[str, Any]) -> None:
    """Write a result with its weights and settings."""
    facts = {"weights": weights, "digest": weights_digest(weights), "data": config.data}
    write_json(path, {**facts, "settings": as_settings(config), **result})


def is_evaluated(path: Path, weights: str, config: KnnConfig | LinearConfig) -> bool:
    """Whether there is a result for these weights and settings; settings of the machine may differ."""
    if not path.exists():
        return False
    found = read_json(path)
    same = first_difference(flatten(found.get("settings", {})), flatten(as_settings(config))) is None
    return same and found.get("digest") == weights_digest(weights)
