"""`python -m benchmarks.from_weights --data FOLDER`: what unlabelled training adds to the weights it starts from.

Rows: the starting weights untouched; MoCo v2 (its queue, projection head and temperature); CsMl with k = 0; CsMl. All
start from the same weights with the settings of the preset: mild views, fixed BatchNorm, the first stages frozen. Those
without neighbours train half as many epochs again, for the minutes that the search takes. Judged on the test images by
20-NN, by logistic regression on all labels, and by logistic regression on five labels a class, the mean over ten draws.
Rows that are there are kept.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import csml
from benchmarks.evidence import fill_rows
from csml.api.pretraining import pretrain_config
from csml.config import PretrainConfig
from csml.data.images import Images
from csml.data.loading import fabric_for
from csml.data.open import open_data
from csml.evaluation.features import extract_features
from csml.evaluation.few_labels import DEFAULT_PENALTY
from csml.evaluation.knn import knn_predict
from csml.evaluation.logistic import fit_logistic
from csml.weights import load_backbone

START = "starting weights"
ROWS: dict[str, tuple[str, float, dict[str, Any]]] = {
    "MoCo v2, equal minutes": ("-moco-v2", 1.5, {"contrast.queue_length": 1024}),
    "CsMl, k = 0, equal minutes": ("", 1.5, {"neighbors.k": 0}),
    "CsMl": ("", 1, {}),
}
"""Suffix of the preset, how many times the epochs, and settings of each row."""
PER_CLASS, DRAWS = 5, 10
ALL_LABELS_PENALTY = 1e-4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="a folder of class folders")
    parser.add_argument("--preset", default="photos")
    parser.add_argument("--size", type=int, default=112)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--title", default="From weights")
    fill_rows(parser, "benchmarks.from_weights", (START, *ROWS), _measured)


def _measured(asked: argparse.Namespace, row: str, seed: int) -> dict[str, float]:
    """Train the row if it trains, and judge it."""
    suffix, times, more = ROWS.get(row, ("", 1, {}))
    settings = {"seed": seed, "images.size": asked.size, "epochs": round(times * asked.epochs), **more}
    settings |= {"monitor.knn_every": 0, "monitor.tensorboard": False, "monitor.baselines": False}
    settings["hardware.precision"] = "32-true"  # auto depends on the machine
    config = pretrain_config(asked.data, preset=asked.preset + suffix, **settings)
    if row == START:
        return _judged(str(config.model.weights), config, seed)
    out = asked.runs / f"{Path(asked.data).name}-{row.replace(' ', '-').replace(',', '')}-{seed}"
    run = csml.pretrain(asked.data, out, preset=asked.preset + suffix, overwrite=True, **settings)
    minutes = sum(epoch["seconds"] + epoch.get("search_seconds", 0.0) for epoch in run.metrics) / 60
    return {**_judged(str(run.path), config, seed), "minutes": minutes}


def _judged(weights: str, config: PretrainConfig, seed: int) -> dict[str, float]:
    data = open_data(config.data, config.images)
    assert data.labeled is not None and data.val is not None
    (train, labels), (test, truth) = (_features(weights, images, config) for images in (data.labeled, data.val))
    right = [float((_learnt(train, labels, test, 100 * seed + draw) == truth).double().mean()) for draw in range(DRAWS)]
    knn = float((knn_predict(train, labels, test, 20) == truth).double().mean())
    linear = float((_fitted(train, labels, test, ALL_LABELS_PENALTY) == truth).double().mean())
    return {"20-NN": knn, "linear": linear, f"{PER_CLASS} labels a class": float(np.mean(right))}


def _features(weights: str, images: Images, config: PretrainConfig) -> tuple[Tensor, Tensor]:
    fabric = fabric_for(images, config.images.workers, config.hardware)
    features = extract_features(load_backbone(weights).to(fabric.device), images, config.images, fabric)
    return features.readable(4)


def _learnt(train: Tensor, labels: Tensor, test: Tensor, draw: int) -> Tensor:
    """Predictions of a logistic regression on a few labels of each class."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(draw))
    chosen = torch.cat([order[labels[order] == label][:PER_CLASS] for label in labels.unique()])
    return _fitted(train[chosen], labels[chosen], test, DEFAULT_PENALTY)


def _fitted(train: Tensor, labels: Tensor, test: Tensor, penalty: float) -> Tensor:
    unit = F.normalize(train.double(), dim=1)
    ((weight, bias),) = fit_logistic(unit, labels, int(labels.max()) + 1, [penalty])
    return (F.normalize(test.double(), dim=1) @ weight.T + bias).argmax(dim=1)


if __name__ == "__main__":
    main()
