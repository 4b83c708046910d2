"""`python -m benchmarks.few_labels --data FOLDER`: what a few labels give, alone and spread over neighbours.

Rows: features of the starting weights and of csml's unlabelled training on top of them; on each, logistic regression on
the labels, the same after mining as the paper does it (predictions that are certain become labels), and the labels
spread over neighbours (`csml finetune --how spread`). Labels are drawn from the training images, the rest of which is
what csml may use without labels; accuracies are of the test images, the mean over draws. Rows that are there are kept.
"""

import argparse
from functools import cache
from pathlib import Path

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
from csml.evaluation.accuracy import entropy
from csml.evaluation.calibration import calibration_error
from csml.evaluation.few_labels import DEFAULT_PENALTY, CrossValidated, fit_frozen, try_frozen
from csml.evaluation.folds import draw_folds
from csml.evaluation.label_spreading import fit_spread, link_neighbors, try_spread
from csml.evaluation.logistic import Linear
from csml.evaluation.stored_features import stored_features
from csml.runs.directory import RunDirectory
from csml.weights import load_backbone

START, FURTHER = "starting weights", "CsMl"
ALONE, MINED, SPREAD = "labels alone", "certain predictions as labels", "labels spread"
ROWS = tuple(f"{weights}: {how}" for weights in (START, FURTHER) for how in (ALONE, MINED, SPREAD))
COUNTS, DRAWS = (1, 2, 5, 20), 5
CALIBRATED = 5
"""Labels a class at which the calibration error is measured."""
MAX_ENTROPY = 0.2
"""Nats, as `csml mine` has it in the presets for photos."""

Split = tuple[Tensor, Tensor]
"""Unit features `(N, C)` and labels `(N,)`."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="a folder of class folders")
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--test", choices=("test", "validation"), default="test", help="images that are tested on")
    parser.add_argument("--title", default="Few labels from weights")
    fill_rows(parser, "benchmarks.few_labels", ROWS, _measured)


def _measured(asked: argparse.Namespace, row: str, seed: int) -> dict[str, float]:
    """Accuracies by the number of labels a class, and the calibration error."""
    weights, how = row.split(": ")
    settings = {"seed": seed, "images.size": asked.size, "images.test": asked.test}
    settings |= {"monitor.knn_every": 0, "monitor.tensorboard": False, "monitor.baselines": False}
    config = pretrain_config(asked.data, preset="photos", **settings)
    if weights == FURTHER:
        out = asked.runs / f"{Path(asked.data).name}-{seed}"
        if not RunDirectory(out).kept.exists():
            csml.pretrain(asked.data, out, preset="photos", overwrite=True, **settings)
        split = _splits(str(out), config)
    else:
        split = _splits(str(config.model.weights), config)
    found: dict[str, float] = {}
    for count in COUNTS:
        results = [_learnt(*split, how, count, 100 * seed + draw) for draw in range(DRAWS)]
        found[f"{count} a class"] = float(np.mean([right for right, _ in results]))
        if count == CALIBRATED and how != MINED:
            found[f"ECE, {count} a class"] = float(np.mean([error for _, error in results]))
    return found


@cache
def _splits(weights: str, config: PretrainConfig) -> tuple[Split, Split]:
    data = open_data(config.data, config.images)
    assert data.labeled is not None and data.val is not None
    backbone = load_backbone(weights)

    def split(images: Images) -> Split:
        fabric = fabric_for(images, config.images.workers, config.hardware)
        features, labels = stored_features(backbone.to(fabric.device), images, config.images, fabric).readable(4)
        return F.normalize(features.double()), labels

    return split(data.labeled), split(data.val)


def _learnt(train: Split, test: Split, how: str, count: int, draw: int) -> tuple[float, float]:
    """Test accuracy and calibration error with `count` labels of each class."""
    (features, truth), classes = train, int(train[1].max()) + 1
    order = torch.randperm(len(truth), generator=torch.Generator().manual_seed(draw))
    chosen = torch.cat([order[truth[order] == label][:count] for label in range(classes)])
    others = torch.ones(len(truth), dtype=torch.bool)
    others[chosen] = False
    labeled, labels, folds = features[chosen], truth[chosen], draw_folds(truth[chosen].numpy(), draw)
    tried: CrossValidated | None = None
    if how == SPREAD:
        graph = link_neighbors(labeled, features[others])
        tried = try_spread(graph, labels, classes, folds) if count == CALIBRATED else None
        linear = fit_spread(graph, torch.arange(len(labels)), labels, classes)
    else:
        tried = try_frozen("logistic", labeled, labels, classes, folds) if len(folds) else None
        penalty = tried.penalty if tried and tried.penalty else DEFAULT_PENALTY
        (linear,) = fit_frozen("logistic", labeled, labels, classes, (penalty,))
    if how == MINED:
        linear = _mined(linear, tried.temperature if tried else 1.0, labeled, labels, features[others], classes)
    scores = (test[0] @ linear[0].T + linear[1]) / (tried.temperature if tried else 1.0)
    probabilities, predicted = scores.softmax(1).max(1)
    right = predicted == test[1]
    return float(right.double().mean()), calibration_error(probabilities, right)


def _mined(
    teacher: Linear, temperature: float, labeled: Tensor, labels: Tensor, others: Tensor, classes: int
) -> Linear:
    """Logistic regression on the labels and on the predictions of the teacher that are certain."""
    probabilities = ((others @ teacher[0].T + teacher[1]) / temperature).softmax(1)
    certain = entropy(probabilities) <= MAX_ENTROPY
    both = torch.cat([labels, probabilities[certain].argmax(1)])
    return fit_frozen("logistic", torch.cat([labeled, others[certain]]), both, classes, (DEFAULT_PENALTY,))[0]


if __name__ == "__main__":
    main()
