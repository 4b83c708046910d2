"""`csml knn`: nearest-neighbour accuracy of a backbone."""

import logging
from typing import Any

from csml.cli.judging import labeled_splits, parse, result_path, write_result
from csml.config.checks import check_knn
from csml.config.protocols import KnnConfig
from csml.data.images import Images
from csml.evaluation.features import extract_features
from csml.evaluation.knn import knn_accuracy
from csml.training.device import build_fabric
from csml.training.launch import join_world
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
    if not join_world(config.hardware).first:
        return 0
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
