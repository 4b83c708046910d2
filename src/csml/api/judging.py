"""`csml.knn` and `csml.linear`: how good the features of a backbone are, by labels it never learnt from."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from csml.api.data import data_setting, labeled_splits
from csml.api.processes import in_processes
from csml.api.run import PathLike, Run, path_of
from csml.api.session import device_for
from csml.api.settings import given, using_config
from csml.config import KnnConfig, LinearConfig, as_settings, flatten, preset_settings
from csml.console import show_log
from csml.data.images import Images
from csml.distributed.launch import join_world
from csml.evaluation.features import extract_features
from csml.evaluation.knn import knn_accuracy
from csml.files import read_json, write_json
from csml.runs.directory import directory_of, probe_directory
from csml.runs.settings import first_difference
from csml.training.linear import LinearProbe, fit_probe
from csml.weights import load_backbone, weights_digest

log = logging.getLogger("csml")


@dataclass(frozen=True)
class KnnResult:
    """Share of the test images that the vote of their nearest training images labels correctly."""

    accuracy: dict[int, float]
    """number of neighbours → accuracy"""
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
    path: Path
    """the result file"""


@show_log()
def knn(weights: "Run | PathLike", *, data: Any = None, config: PathLike | None = None, **settings: Any) -> KnnResult:
    """Classify test images by the weighted vote of their nearest training images.

    Args:
        weights: a run, its directory, or a weight file of csml or another trainer.
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
    """Judge in this process, which may be one of several."""
    world = join_world(config.hardware)
    train, val = labeled_splits(world, config.data, config.images, in_memory)
    result = judge_knn(load_backbone(weights), train, val, config)
    path = result_path(weights, config.output, "knn")
    if world.is_rank_zero:
        write_result(path, weights, config, result)
        log.info("written to %s", path)
    accuracy = {int(k): share for k, share in result["accuracy"].items()}
    return KnnResult(accuracy, result["trained_on"], result["tested"], result["failed"], path)


def judge_knn(backbone: Any, train: Images, val: Images, config: KnnConfig) -> dict[str, Any]:
    """Accuracy for each k; a k above the number of training images is cut to it."""
    fabric = device_for(train, config)
    backbone = backbone.to(fabric.device)
    kept, test = (
        extract_features(
            backbone, images, config.images, fabric, (config.stage,), description=f"{name} features", only_mine=True
        )
        for name, images in (("training", train), ("test", val))
    )
    shares, trained_on, tested = knn_accuracy(kept, test, config.stage, config.k, config.temperature, fabric)
    return {
        "accuracy": {str(k): share for k, share in zip(config.k, shares, strict=True)},
        "stage": config.stage,
        "temperature": config.temperature,
        "trained_on": trained_on,
        "tested": tested,
        "failed": len(train) + len(val) - trained_on - tested,
    }


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
        weights: a run, its directory, or a weight file of csml or another trainer.
        data: labelled images; by default those of the run.
        preset: the preset of the pre-training, which knows the learning rate that suits its network.
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
    """Judge in this process, which may be one of several; resume None: continue if there is something to continue."""
    world = join_world(config.hardware)
    train, val = labeled_splits(world, config.data, config.images, in_memory)
    path = result_path(weights, config.output, "linear")
    fabric = device_for(train, config)
    probe = LinearProbe(config, load_backbone(weights), train, val, probe_directory(path), fabric)
    result = fit_probe(probe, resume)
    if world.is_rank_zero:
        write_result(path, weights, config, result)
        log.info("written to %s", path)
    stages = {int(stage): scores for stage, scores in result["stages"].items()}
    return LinearResult(
        {stage: scores["top1"] for stage, scores in stages.items()},
        {stage: scores["top5"] for stage, scores in stages.items()},
        {stage: scores["per_class"] for stage, scores in stages.items()},
        path,
    )


def result_path(weights: str, output: str | None, name: str) -> Path:
    """`output`, else the result file of the run, else one beside the weight file."""
    if output:
        return Path(output).expanduser()
    return directory_of(weights).result(name)


def write_result(path: Path, weights: str, config: KnnConfig | LinearConfig, result: dict[str, Any]) -> None:
    """What was found, for which weights, with which settings."""
    facts = {"weights": weights, "digest": weights_digest(weights), "data": config.data}
    write_json(path, {**facts, "settings": as_settings(config), **result})


def is_judged(path: Path, weights: str, config: KnnConfig | LinearConfig) -> bool:
    """Whether there is a result of these weights with these settings, apart from those of the machine."""
    if not path.exists():
        return False
    found = read_json(path)
    same = first_difference(flatten(found.get("settings", {})), flatten(as_settings(config))) is None
    return same and found.get("digest") == weights_digest(weights)
