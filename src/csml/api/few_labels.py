"""Learning from a few labels: methods compared by cross-validation, and a calibrated classifier."""

import logging
import shutil
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from lightning_fabric import Fabric
from torch import Tensor

from csml.api.session import Session, device_for, hardware_record, train, with_resolved_hardware
from csml.config import FinetuneConfig
from csml.data.images import Images, Subset, evenly_spaced
from csml.data.labels import LabeledData, stratified
from csml.errors import CsmlError
from csml.evaluation.accuracy import accuracy, confusion
from csml.evaluation.calibration import calibration_error
from csml.evaluation.features import extract_features
from csml.evaluation.few_labels import DEFAULT_PENALTY, CrossValidated, choose, fit_frozen, splits, try_frozen
from csml.evaluation.folds import draw_folds
from csml.evaluation.label_spreading import NeighborGraph, fit_spread, link_neighbors, try_spread
from csml.evaluation.stored_features import stored_features
from csml.files import save_array, write_json
from csml.models.classifier import Classifier
from csml.runs.directory import RunDirectory, checkpoint_files
from csml.runs.metadata import write_metadata
from csml.runs.trust import save_trust, trust_in
from csml.training.build import seeded
from csml.training.classification import Classification
from csml.training.loop import TrainingLoop
from csml.training.tuning import TUNED, apply_temperature, tunable, tuning_config, with_linear
from csml.weights import load_backbone, save_backbone, save_classifier

log = logging.getLogger("csml")

_FROZEN = ("logistic", "prototypes")
_MOST = 5000
"""Largest number of labels that cross-validation uses; more would not change which method wins."""
_MOST_OTHERS = 10_000
"""Largest number of unlabelled images for label spreading; more cost time and hardly help."""
_FEWEST_OTHERS = 1000
_MOST_TARGETS = 2_000_000
"""Limit on images × classes for label spreading, so that cross-validation takes seconds to minutes."""


@dataclass(frozen=True)
class _Labels:
    """Labelled images that could be read."""

    images: Images
    features: Tensor
    """`(N, C)`, unit length, by the network before any tuning"""
    labels: Tensor
    """`(N,)`"""
    others: Tensor | None = None
    """`(M, C)`: features of unlabelled images, for label spreading"""

    @property
    def classes(self) -> int:
        return len(self.images.classes)

    @cached_property
    def graph(self) -> NeighborGraph:
        """The neighbour graph of all images, for cross-validation and for the classifier."""
        assert self.others is not None
        return link_neighbors(self.features, self.others)

    def only(self, rows: Tensor) -> "_Labels":
        return _Labels(Subset(self.images, rows.numpy()), self.features[rows], self.labels[rows], self.others)


def learn_few_labels(session: Session, config: FinetuneConfig, labeled: LabeledData) -> None:
    """Learn by the method `config.how`, calibrate, test, and write classifier, trust and result to the run."""
    config = with_resolved_hardware(session, config)
    fabric, run = device_for(labeled.train, config), session.run
    known = _read(labeled.train, config, fabric)
    known = replace(known, others=_others(labeled, config, fabric, len(known.labels)))
    recorded = session.resumed and run.facts.exists()  # not if it was interrupted before
    if not recorded and session.world.is_rank_zero:
        facts = {"images": len(labeled.train), "fingerprint": labeled.train.fingerprint(), "device": str(fabric.device)}
        write_metadata(run, session.verb, facts | hardware_record(config, fabric))
    tried = _cross_validate(session, config, known)
    chosen = choose(tried) if tried else None
    how = chosen.how if chosen else _without_folds(config.how, known)
    temperature = chosen.temperature if chosen else 1.0
    penalty = next((one.penalty for one in tried if one.penalty), DEFAULT_PENALTY)
    log.info("learning from %d labels: %s", len(known.labels), how)
    classifier = _learn(session, config, known, how, penalty)
    apply_temperature(classifier, temperature)
    expected, error = (chosen.expected, chosen.error) if chosen and chosen.covers_most else (None, None)
    if chosen and expected is None:
        log.info("most labels are the only ones of their class, so the accuracy cannot be estimated")
    features = known.features if how not in TUNED else _read(known.images, config, fabric, classifier).features
    result: dict[str, Any] = {
        "data": config.data,
        "epochs": config.epochs if how in TUNED else 0,
        "labels": len(known.labels),
        "how": how,
        "tried": [_row(one) for one in tried],
        "temperature": temperature,
        "expected": expected,
        "error": error,
    }
    if labeled.val is not None:
        result |= {"classes": labeled.train.classes, **_test(classifier, labeled.val, config, fabric)}
    if session.world.is_rank_zero:
        save_backbone(run.backbone, classifier.backbone, config.model, config.images)
        save_classifier(run.classifier, classifier, config.model, config.images, labeled.train.classes)
        save_trust(run.trust, trust_in(features, config.seed, expected, error))
        write_json(run.result(session.verb), result)
        shutil.rmtree(run.folds, ignore_errors=True)


def _read(images: Images, config: FinetuneConfig, fabric: Fabric, classifier: Classifier | None = None) -> _Labels:
    """Features of labelled images, by the network that the run starts from or by a classifier's."""
    backbone = load_backbone(str(config.weights), config.images.channels) if classifier is None else classifier.backbone
    found = stored_features(backbone.to(fabric.device), images, config.images, fabric)
    rows = np.flatnonzero(found.good.numpy())
    features, labels = found.readable(4)
    return _Labels(Subset(images, rows), F.normalize(features), labels)


def _others(labeled: LabeledData, config: FinetuneConfig, fabric: Fabric, labels: int) -> Tensor | None:
    """Features of evenly spaced unlabelled images; None if label spreading is not used or not worthwhile.

    With fewer unlabelled than labelled images, spreading gains next to nothing.
    """
    if config.how not in ("auto", "spread"):
        return None
    images = Subset(labeled.images, labeled.unlabeled)
    most = max(_FEWEST_OTHERS, min(_MOST_OTHERS, _MOST_TARGETS // len(labeled.train.classes)) - labels)
    if config.how == "auto" and min(most, len(images)) < labels:
        return None
    found = _read(evenly_spaced(images, most), config, fabric).features if len(images) else None
    if config.how == "spread" and (found is None or not len(found)):
        raise CsmlError("how: spread needs images without a label beside the labelled ones; try --how logistic")
    return found


def _without_folds(how: str, known: _Labels) -> str:
    if how == "auto":
        log.info("one label a class is too few to compare ways to learn, to calibrate or to estimate accuracy")
        return "logistic" if known.others is None else "spread"
    return how


def _cross_validate(session: Session, config: FinetuneConfig, known: _Labels) -> list[CrossValidated]:
    """Cross-validate each method, in order of preference; empty if no class has two labels."""
    if len(known.labels) > _MOST:
        share = _MOST / len(known.labels)
        known = known.only(torch.from_numpy(stratified(known.labels.numpy(), share, config.seed)))
    enough = len(known.labels) >= config.tune_from * len(known.labels.unique())
    spread = () if known.others is None else ("spread",)
    ways = (config.how,) if config.how != "auto" else (*spread, *_FROZEN, *(TUNED if enough else ()))
    tunes = any(how in TUNED for how in ways)
    folds = draw_folds(known.labels.numpy(), config.seed, repeats=1 if tunes else None)
    if not len(folds):
        return []
    if tunes and config.how == "auto":
        log.info(
            "with %d labels a class layers are tuned, too: %d times %d epochs, which may take long; --tune_from %d "
            "leaves it out",
            len(known.labels) // len(known.labels.unique()),
            len(TUNED) * len(list(splits(folds))),
            config.epochs,
            len(known.labels),
        )
    logistic = try_frozen("logistic", known.features, known.labels, known.classes, folds)
    tried = []
    for how in ways:
        if how == "logistic":
            one = logistic
        elif how == "spread":
            one = try_spread(known.graph, known.labels, known.classes, folds)
        elif how in _FROZEN:
            one = try_frozen(how, known.features, known.labels, known.classes, folds)
        else:
            one = _try_tuned(session, config, known, how, folds, logistic)
        log.info("%s: %.1f %% ± %.1f in cross-validation", how, 100 * one.accuracy, 100 * one.error)
        tried.append(one)
    return tried


def _try_tuned(
    session: Session, config: FinetuneConfig, known: _Labels, how: str, folds: np.ndarray, logistic: CrossValidated
) -> CrossValidated:
    """Train on the labels outside each fold. Finished folds are stored, so that the run can be resumed."""
    scores = torch.zeros_like(logistic.scores)
    for number, (_, kept, out) in enumerate(splits(folds), 1):
        fold = session.run.fold(how, number)
        if not session.world.broadcast(fold.scores.exists):
            assert logistic.penalty is not None
            classifier = _tune(config, known.only(kept), how, logistic.penalty, fold)
            found = _scores(classifier, known.only(out).images, config)
            if session.world.is_rank_zero:
                shutil.rmtree(fold.root)
                save_array(fold.scores, found.numpy())
            session.world.barrier()
        scores[0, out] = torch.from_numpy(np.load(fold.scores)).double()
    return CrossValidated(how, scores, logistic.held, known.labels, logistic.kept)


def _tune(config: FinetuneConfig, known: _Labels, how: str, penalty: float, fold: RunDirectory) -> Classifier:
    task, made, fabric = _tuning(config, known, how, penalty, fold, quiet=True)
    fold.root.mkdir(parents=True, exist_ok=True)
    loop = TrainingLoop(task, made, fold, fabric)
    if checkpoint_files(fold.checkpoints):
        loop.resume()
    loop.fit()
    return task.network


def _learn(session: Session, config: FinetuneConfig, known: _Labels, how: str, penalty: float) -> Classifier:
    """The classifier from all labels, not yet calibrated."""
    if how == "spread":
        linear = fit_spread(known.graph, torch.arange(len(known.labels)), known.labels, known.classes)
        return with_linear(load_backbone(str(config.weights), config.images.channels), linear).eval()
    if how in _FROZEN:
        (linear,) = fit_frozen(how, known.features, known.labels, known.classes, (penalty,))
        return with_linear(load_backbone(str(config.weights), config.images.channels), linear).eval()
    task, made, fabric = _tuning(config, known, how, penalty, session.run)
    resumed = session.resumed and session.world.broadcast(lambda: bool(checkpoint_files(session.run.checkpoints)))
    train(replace(session, resumed=resumed), task, made, fabric)
    return task.network


def _tuning(
    config: FinetuneConfig, known: _Labels, how: str, penalty: float, run: RunDirectory, quiet: bool = False
) -> tuple[Classification, FinetuneConfig, Fabric]:
    """A task that tunes layers of the network, starting from a linear layer fitted to the same labels."""
    made, fabric = tuning_config(config, len(known.labels)), device_for(known.images, config)
    (linear,) = fit_frozen("logistic", known.features, known.labels, known.classes, (penalty,))
    with seeded(config.seed):
        classifier = tunable(load_backbone(str(config.weights), config.images.channels), linear, how)
    return Classification("finetune", made, classifier, known.images, None, run, fabric, quiet=quiet), made, fabric


@torch.no_grad()
def _scores(classifier: Classifier, images: Images, config: FinetuneConfig) -> Tensor:
    """`(N, classes)`, for images that can be read."""
    fabric = device_for(images, config)
    found = extract_features(classifier.backbone, images, config.images, fabric)  # used for one fold only
    return classifier.scores(found.by_stage[4].to(fabric.device)).cpu()


@torch.no_grad()
def _test(classifier: Classifier, images: Images, config: FinetuneConfig, fabric: Fabric) -> dict[str, Any]:
    """Accuracy, calibration error and confusion matrix on centre crops of the test images."""
    found = stored_features(classifier.to(fabric.device).backbone, images, config.images, fabric)
    features, labels = found.readable(4)
    if not len(labels):
        raise CsmlError("data: none of the test images can be read")
    scores = classifier.scores(features.to(fabric.device)).cpu()  # (Q, classes)
    probabilities, predicted = scores.double().softmax(1).max(1)
    tested = accuracy(scores, labels, images.classes)
    log.info("test top-1 %.1f %%", 100 * tested["top1"])
    return {
        **tested,
        "best_top1": tested["top1"],
        "ece": calibration_error(probabilities, predicted == labels),
        "confusion": confusion(scores, labels, len(images.classes)),
    }


def _row(one: CrossValidated) -> dict[str, Any]:
    """The entry of finetune.json for one method."""
    return {
        "how": one.how,
        "penalty": one.penalty,
        "accuracy": one.accuracy,
        "error": one.error,
        "expected": one.expected,
        "log_loss": one.log_loss,
        "temperature": one.temperature,
    }
