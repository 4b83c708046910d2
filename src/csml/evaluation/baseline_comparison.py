"""Compares a result with its baselines in words, with advice if a baseline is better."""

import math
from collections.abc import Mapping

from csml.config import is_untrained, is_weight_name
from csml.evaluation.baselines import START, TITLES
from csml.runs.metadata import verb_of
from csml.runs.run_of_weights import directory_of

_MORE = "more epochs or more images"


def in_words(scores: Mapping[str, float]) -> str:
    """Baselines and their accuracies: `largest class 23.8%, raw pixels 51.6%`."""
    return ", ".join(f"{TITLES[name]} {share:.1%}" for name, share in scores.items())


def shortfall(
    weights: str, measure: str, accuracy: float, scores: Mapping[str, float], tested: int | None = None
) -> str | None:
    """One line if a baseline is better than the weights: which, and what to try; else None.

    Args:
        weights: the evaluated weights.
        measure: for example `20-NN`.
        accuracy: of the weights.
        scores: baseline → accuracy.
        tested: number of test images, if known: then a baseline is better only beyond the accuracy's standard error.
    """
    better = {name: share for name, share in scores.items() if share - accuracy > _error(accuracy, tested)}
    if not better or is_untrained(weights):
        return None
    listed = " and ".join(f"{TITLES[name]} ({share:.1%})" for name, share in sorted(better.items(), key=_strongest))
    return f"{measure} {accuracy:.1%} is below {listed}: {_advice(weights, better, scores)}"


def _error(accuracy: float, tested: int | None) -> float:
    return math.sqrt(accuracy * (1 - accuracy) / tested) if tested else 0.0


def _strongest(item: tuple[str, float]) -> float:
    return -item[1]


def _advice(weights: str, better: Mapping[str, float], scores: Mapping[str, float]) -> str:
    run = None if is_weight_name(weights) else directory_of(weights)
    if run is None or not run.config.exists():
        return "these weights do not suit the images; try others, or pretrain from them on the images"
    if START in better:
        return f"training has made the weights worse; use {run.start}, or try a lower learning rate or fewer epochs"
    verb = verb_of(run.root)
    if verb != "pretrain":
        return f"the network has learnt little that is general; try {_MORE}"
    if START in scores:
        return f"the starting weights do not suit the images; try others, {_MORE}"
    return f"the run has learnt too little; try --model.weights lite0, {_MORE}"
