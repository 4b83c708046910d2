"""Evaluation around pre-training: baselines before it, kNN accuracy after it, and stored features for other verbs."""

import logging

from lightning_fabric import Fabric

from csml.api.evaluating import evaluate_weights, is_evaluated, warn_below
from csml.config import KnnConfig, PretrainConfig
from csml.data.failures import Failures
from csml.data.open import DataSplits
from csml.distributed.world import world_of
from csml.evaluation.baseline_comparison import in_words
from csml.evaluation.baselines import baselines_of_run
from csml.evaluation.stored_features import can_keep, stored_features
from csml.runs.directory import RunDirectory
from csml.weights import load_backbone

log = logging.getLogger("csml")

_MOST_KEPT = 20_000
"""Largest number of images whose features are computed at the end of a run."""


def evaluate_baselines(run: RunDirectory, config: PretrainConfig, data: DataSplits, fabric: Fabric) -> None:
    """Evaluate the baselines, including the starting weights, before training; nothing without labels."""
    if not config.monitor.baselines or data.labeled is None or data.val is None:
        return
    found, knn = baselines_of_run(config.model, run, data.labeled, data.val), _knn(config)
    scores = found.by_knn(knn, fabric)["accuracy"]
    for note in found.notes:
        log.info(note)
    k = str(knn.k[0])
    log.info("baselines, %s-NN: %s", k, in_words({name: by_k[k] for name, by_k in scores.items()}))


def evaluate_run(run: RunDirectory, config: PretrainConfig, data: DataSplits, fabric: Fabric) -> None:
    """Evaluate the finished run against its baselines, as `csml knn` does; nothing without labels or if done."""
    if not config.monitor.baselines or data.labeled is None or data.val is None:
        return
    knn, root = _knn(config), str(run.root)
    if world_of(fabric).broadcast(lambda: is_evaluated(run.result("knn"), root, knn)):
        return
    result = evaluate_weights(root, load_backbone(root), data.labeled, data.val, knn, fabric, quiet=True)
    k = knn.k[0]
    beside = in_words({name: by_k[k] for name, by_k in result.baselines.items()})
    log.info("%d-NN of the run: %.1f%% (%s)", k, 100 * result.accuracy[k], beside)
    warn_below(root, result)


def store_features(run: RunDirectory, config: PretrainConfig, data: DataSplits, fabric: Fabric) -> None:
    """Compute and store the features that `select`, `explore`, `finetune` and other verbs need first."""
    backbone, images = load_backbone(run.root), data.train
    wanted = config.monitor.keep_features and len(images) <= _MOST_KEPT
    if wanted and world_of(fabric).size == 1 and can_keep(backbone, images):
        nothing_fails = Failures(images, tolerated=1.0, quiet=True)  # training counted and reported them
        stored_features(backbone.to(fabric.device), images, config.images, fabric, failures=nothing_fails)


def _knn(config: PretrainConfig) -> KnnConfig:
    """The settings of `csml knn RUN`."""
    return KnnConfig(data=config.data, images=config.images, hardware=config.hardware)
