"""`csml knn`: nearest-neighbour accuracy of a backbone."""

import logging
from typing import Any

from csml.cli.judging import labeled_splits, parse, result_path, write_result
from csml.config.checks import check_knn
from csml.config.protocols import KnnConfig
from csml.data.images import Images
from csml.evaluation.features import extract_features
from csml.evaluation.knn import vote
from csml.neighbors import nearest
from csml.training.device import build_fabric
from csml.weights import load_backbone

log = logging.getLogger("csml")


SUMMARY = "Classify test images by the weighted vote of their nearest training images."


def run(arguments: list[str]) -> int:
    weights, config, _ = parse("knn", KnnConfig, SUMMARY, arguments)
    return carry_out(weights, config)


def carry_out(weights: str, config: KnnConfig) -> int:
    """Judge, print, write; the exit code."""
    check_knn(config)
    train, val = labeled_splits(config)
    result = judge(load_backbone(weights), train, val, config)
    path = result_path(weights, config.output, "knn.json")
    write_result(path, weights, config, result)
    for k, accuracy in result["accuracy"].items():
        print(f"{k}-NN  {accuracy:.1%}")
    log.info("written to %s", path)
    return 0


def judge(backbone: Any, train: Images, val: Images, config: KnnConfig) -> dict[str, Any]:
    """Accuracy of each k; k beyond the number of training images is cut to it."""
    fabric = build_fabric(config.hardware, train, config.images.workers)
    backbone = backbone.to(fabric.device)
    kept = extract_features(backbone, train, config.images, fabric, (config.stage,), description="training features")
    test = extract_features(backbone, val, config.images, fabric, (config.stage,), description="test features")
    device = fabric.device
    train_features = kept.by_stage[config.stage][kept.good].to(device)
    test_features = test.by_stage[config.stage][test.good].to(device)
    train_labels, test_labels = kept.labels[kept.good].to(device), test.labels[test.good].to(device)
    most = min(max(config.k), len(train_features))
    indices, similarities = nearest(test_features, train_features, most)  # once for all k
    accuracy = {}
    for k in config.k:
        predicted = vote(indices[:, :k], similarities[:, :k], train_labels, config.temperature)
        accuracy[str(k)] = float((predicted == test_labels).float().mean())
    return {
        "accuracy": accuracy,
        "stage": config.stage,
        "temperature": config.temperature,
        "trained_on": len(train_labels),
        "tested": len(test_labels),
        "failed": int((~kept.good).sum() + (~test.good).sum()),
    }
