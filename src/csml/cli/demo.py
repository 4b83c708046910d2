"""`csml demo`: both methods on the built-in pictures, judged against raw pixels and an untrained network."""

import logging
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from csml.cli.knn import judge
from csml.cli.pretrain import parse as parse_pretrain
from csml.cli.pretrain import pretrain
from csml.cli.report import ReportConfig, write_report
from csml.config.parsing import SettingsParser
from csml.config.protocols import KnnConfig
from csml.config.schema import PretrainConfig
from csml.data.images import Images
from csml.data.loading import center_batches, consecutive
from csml.data.open import DataSplits, open_data
from csml.errors import CsmlError
from csml.evaluation.features import extract_features
from csml.evaluation.knn import knn_predict
from csml.neighbors import top_k
from csml.program import program
from csml.report.contact_sheet import neighbor_sheet
from csml.training.build import build_method
from csml.training.device import build_fabric
from csml.training.metrics import read_metrics
from csml.training.run_directory import new_run, write_json
from csml.weights import load_backbone

log = logging.getLogger("csml")

_KS = (20, 200)
_PRESETS = {"moco-v2": "demo-moco-v2", "csml": "demo"}


@dataclass
class DemoConfig:
    """Settings of `csml demo`."""

    data: str = "synthetic"
    """Labelled images of about 32 pixels: the built-in ones, or a folder of class folders, or cifar10."""
    out: str | None = None
    """Directory for both runs; by default the next free runs/demo-001."""
    epochs: int | None = None
    """Passes over the data, the same for both methods; by default the preset's."""
    seed: int = 0
    """Of both runs."""


@dataclass
class _Row:
    name: str
    accuracy: dict[str, float]
    minutes: float | None = None
    purity: float | None = None


def run(arguments: list[str]) -> int:
    summary = "Pre-train MoCo v2 and CsMl for equal epochs and see how far each gets."
    parser = SettingsParser("demo", DemoConfig, summary, "csml demo [--out FOLDER] [--epochs N]")
    settings = parser.build(parser.settings(arguments), DemoConfig)
    configs = {name: _config(preset, settings) for name, preset in _PRESETS.items()}
    data = open_data(settings.data, configs["csml"].images)
    if data.labeled is None or data.val is None:
        raise CsmlError(f"data: the demo compares by labels, and {settings.data} has none; use csml pretrain")
    root = new_run(settings.out, "demo").root
    for name, config in configs.items():
        config.out = str(root / name)
    _introduce(data, configs["csml"])
    rows = [
        _Row("raw pixels", _pixel_accuracy(data.labeled, data.val)),
        _Row("untrained network", _untrained_accuracy(configs["csml"], data)),
    ]
    for name, title in (("moco-v2", "MoCo v2"), ("csml", "CsMl")):
        log.info("\n%s, %d epochs", title, configs[name].epochs)
        started = time.monotonic()
        code = pretrain(configs[name])
        if code:
            return code
        minutes = (time.monotonic() - started) / 60
        purities = [record.get("omega/purity") for record in read_metrics(root / name / "metrics.jsonl")]
        last = next((p for p in reversed(purities) if p is not None), None)
        judged = _judge(load_backbone(root / name), data, configs[name])
        write_json(root / name / "knn.json", {"weights": str(root / name), "data": settings.data, **judged})
        rows.append(_Row(title, judged["accuracy"], minutes, last))
    write_json(root / "demo.json", [asdict(row) for row in rows])
    _draw_neighbors(root, data.train, configs["csml"])
    report = write_report([str(root / "moco-v2"), str(root / "csml")], ReportConfig(output=str(root / "report.html")))
    _conclude(rows, root, report)
    return 0


def _config(preset: str, settings: DemoConfig) -> PretrainConfig:
    words = ["--preset", preset, "--data", settings.data, "--seed", str(settings.seed)]
    if settings.epochs is not None:
        words += ["--epochs", str(settings.epochs)]
    return parse_pretrain(words)[0]


def _judge(backbone: Any, data: DataSplits, config: PretrainConfig) -> dict[str, Any]:
    assert data.labeled is not None and data.val is not None
    settings = KnnConfig(data=config.data, k=_KS, images=config.images, hardware=config.hardware)
    return judge(backbone, data.labeled, data.val, settings)


def _untrained_accuracy(config: PretrainConfig, data: DataSplits) -> dict[str, float]:
    untrained = build_method(config, len(data.train)).query_encoder.backbone
    accuracy: dict[str, float] = _judge(untrained, data, config)["accuracy"]
    return accuracy


def _pixel_accuracy(train: Images, val: Images) -> dict[str, float]:
    """kNN on the pixels of centre crops, less their mean over the training images (which makes it stronger)."""

    def pixels(images: Images) -> tuple[torch.Tensor, torch.Tensor]:
        batches = list(center_batches(images, 32, 1.0, consecutive(images, 256), workers=0))
        good = torch.cat([batch.good for batch in batches])
        crops = torch.cat([batch.crops for batch in batches])[good]
        return crops.float().flatten(1), torch.from_numpy(images.labels)[good]  # (N, 3·32·32), (N,)

    (train_pixels, train_labels), (val_pixels, val_labels) = pixels(train), pixels(val)
    mean = train_pixels.mean(0)
    right = (knn_predict(train_pixels - mean, train_labels, val_pixels - mean, k) == val_labels for k in _KS)
    return {str(k): float(share.float().mean()) for k, share in zip(_KS, right, strict=True)}


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
    """An anchor of each class with the neighbours that the finished backbone finds."""
    fabric = build_fabric(config.hardware, images, config.images.workers)
    features = extract_features(load_backbone(root / "csml").to(fabric.device), images, config.images, fabric)
    neighbors, _ = top_k(features.by_stage[4], min(10, len(images) - 1))
    anchors = [np.flatnonzero(images.labels == label)[:1] for label in range(len(images.classes))]
    neighbor_sheet(images, neighbors.numpy(), np.concatenate(anchors)[:20]).save(root / "neighbors.png")
    log.info("each picture with its nearest neighbours, as CsMl sees them: %s", root / "neighbors.png")


def _conclude(rows: list[_Row], root: Path, report: Path) -> None:
    table = Table(title="Test pictures classified by their nearest training pictures")
    for heading in ("representation", *(f"{k}-NN" for k in _KS), "purity of Ω", "minutes"):
        table.add_column(heading, justify="left" if heading == "representation" else "right")
    for row in rows:
        table.add_row(
            row.name,
            *(f"{row.accuracy[str(k)]:.1%}" for k in _KS),
            "" if row.purity is None else f"{row.purity:.1%}",
            "" if row.minutes is None else f"{row.minutes:.1f}",
        )
    console = Console(soft_wrap=True, highlight=False)
    console.print(table)
    console.print(f"to look at:       {report} (open it in a browser)")
    console.print(f"runs and metrics: {root}/csml and {root}/moco-v2 (metrics.jsonl; tensorboard --logdir {root})")
    console.print(f"the backbone:     {root}/csml/backbone.safetensors")
    console.print(f'in Python:        import csml; backbone = csml.load_backbone("{root}/csml")')
    console.print(f"your own images:  {program()} pretrain --preset photos --data FOLDER")
