"""`csml.demo`: MoCo v2 and CsMl on the built-in pictures, compared with raw pixels and an untrained network."""

import logging
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from csml.api.evaluating import write_result
from csml.api.pretraining import pretrain_config, run_pretrain
from csml.api.run import PathLike
from csml.api.session import Options, device_for
from csml.api.settings import given, plain_config
from csml.config import DemoConfig, KnnConfig, PretrainConfig
from csml.console import show_log
from csml.data.images import Images
from csml.data.open import DataSplits, open_data
from csml.errors import CsmlError
from csml.evaluation.baselines import TITLES, baselines_of_run
from csml.evaluation.features import extract_features
from csml.evaluation.knn import evaluate_knn
from csml.extras import MissingExtra
from csml.files import write_json
from csml.reporting.report import report
from csml.runs.directory import RunDirectory
from csml.runs.metrics import read_metrics
from csml.runs.opening import new_run, require_free
from csml.search import top_k
from csml.sheets.contact_sheet import neighbor_sheet
from csml.weights import load_backbone

log = logging.getLogger("csml")

_METHODS = {"moco-v2": ("demo-moco-v2", "MoCo v2"), "csml": ("demo", "CsMl")}


@dataclass(frozen=True)
class DemoRow:
    """The kNN accuracy of one representation on the test pictures."""

    name: str
    accuracy: dict[str, float]
    """number of neighbours → accuracy"""
    minutes: float | None = None
    purity: float | None = None
    """share of neighbours in the last neighbour set Ω with the label of their anchor"""


@dataclass(frozen=True)
class DemoResult:
    """Both runs and their baselines."""

    rows: list[DemoRow]
    path: Path
    """folder with the runs moco-v2 and csml, demo.json and neighbors.png"""
    report: Path | None
    """None if the extra [report] is not installed"""


@show_log()
def demo(*, config: PathLike | None = None, **settings: Any) -> DemoResult:
    """Pre-train MoCo v2 and CsMl for equal epochs on built-in pictures, and compare them.

    Args:
        config: a YAML file of settings.
        settings: any setting of `csml demo --help`.
    """
    made = demo_config(config=config, **settings)
    configs = {name: _pretrain_config(preset, made) for name, (preset, _) in _METHODS.items()}
    require_free(made.out)
    data = open_data(made.data, configs["csml"].images)
    if data.labeled is None or data.val is None:
        raise CsmlError(f"data: the demo compares by labels, and {made.data} has none; use csml pretrain")
    root = new_run(made.out, "demo").root
    _introduce(data, configs["csml"])
    beside = _baselines(data, configs["csml"])
    rows = [DemoRow(TITLES[name], accuracy) for name, accuracy in beside["accuracy"].items()]
    for name, (_, title) in _METHODS.items():
        log.info("\n%s, %d epochs", title, configs[name].epochs)
        rows.append(_trained(title, replace(configs[name], out=str(root / name)), data, beside))
    write_json(root / "demo.json", [asdict(row) for row in rows])
    _draw_neighbors(root, data.train, configs["csml"])
    return DemoResult(rows, root, _report(root))


def demo_config(*, config: PathLike | None = None, **settings: Any) -> DemoConfig:
    """The settings that `demo` would run with, checked."""
    return plain_config(DemoConfig, settings, config)


def _pretrain_config(preset: str, settings: DemoConfig) -> PretrainConfig:
    own: dict[str, Any] = {"monitor.baselines": False}  # the demo compares both runs with the same baselines
    return pretrain_config(settings.data, preset=preset, seed=settings.seed, **own, **given(epochs=settings.epochs))


def _baselines(data: DataSplits, config: PretrainConfig) -> dict[str, Any]:
    assert data.labeled is not None and data.val is not None
    found = baselines_of_run(config.model, None, data.labeled, data.val)
    return found.by_knn(_knn_config(config), device_for(data.train, config))


def _trained(title: str, config: PretrainConfig, data: DataSplits, beside: dict[str, Any]) -> DemoRow:
    started = time.monotonic()
    run = RunDirectory(run_pretrain(config, Options()))
    minutes = (time.monotonic() - started) / 60
    purities = [record.get("omega/purity") for record in read_metrics(run.metrics)]
    last = next((purity for purity in reversed(purities) if purity is not None), None)
    result = {**_evaluate(load_backbone(run.root), data, config), "baselines": beside}
    write_result(run.result("knn"), str(run.root), _knn_config(config), result)
    return DemoRow(title, result["accuracy"], minutes, last)


def _knn_config(config: PretrainConfig) -> KnnConfig:
    return KnnConfig(data=config.data, images=config.images, hardware=config.hardware)


def _evaluate(backbone: Any, data: DataSplits, config: PretrainConfig) -> dict[str, Any]:
    assert data.labeled is not None and data.val is not None
    return evaluate_knn(backbone, data.labeled, data.val, _knn_config(config), device_for(data.train, config))


def _introduce(data: DataSplits, config: PretrainConfig) -> None:
    log.info(
        "%d training and %d test pictures of %d classes: %s",
        len(data.train),
        len(data.val or ()),
        len(data.train.classes),
        ", ".join(data.train.classes),
    )
    log.info("network %s at %d pixels, batch %d", config.model.backbone, config.images.size, config.batch_size)


def _draw_neighbors(root: Path, images: Images, config: PretrainConfig) -> None:
    """Draw an anchor of each class with its nearest neighbours by the finished backbone."""
    fabric = device_for(images, config)
    features = extract_features(load_backbone(root / "csml").to(fabric.device), images, config.images, fabric)
    neighbors, _ = top_k(features.by_stage[4], min(10, len(images) - 1))
    anchors = [np.flatnonzero(images.labels == label)[:1] for label in range(len(images.classes))]
    neighbor_sheet(images, neighbors.numpy(), np.concatenate(anchors)[:20]).save(root / "neighbors.png")
    log.info("each picture with its nearest neighbours, as CsMl sees them: %s", root / "neighbors.png")


def _report(root: Path) -> Path | None:
    try:
        return report([root / name for name in _METHODS], output=root / "report.html")
    except MissingExtra as error:  # the comparison is useful without it
        log.info("no report: %s", error)
        return None
