"""Lists of images that may not belong in the data: near-duplicates, outliers, wrong labels, poor pictures."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch

from csml.data.images import UNLABELED
from csml.evaluation.image_quality import Quality, image_quality
from csml.evaluation.screening import likely_wrong_labels, near_duplicates, outlier_ids, outliers
from csml.explorer.background import BackgroundValue
from csml.explorer.network_view import NetworkView
from csml.explorer.workbench import Workbench
from csml.progress import reported_to

_NEAREST = 5
_MOST = 20_000
"""Largest number of images in a list."""


@dataclass(frozen=True)
class ReviewList:
    """A list of images, with the reason for each."""

    ids: list[int]
    notes: list[str]
    suggested: dict[int, str] = field(default_factory=dict)
    """the suggested label by id, in the list of wrong labels"""
    extra: list[int] = field(default_factory=list)
    """for near-duplicates: all but the first of each group"""


@dataclass(frozen=True)
class Answer:
    """A list, or the progress of computing it."""

    found: ReviewList | None
    done: float
    problem: str | None


class ReviewLists:
    """Computes each list on first use, and again when its inputs change."""

    def __init__(self, workbench: Workbench) -> None:
        self._workbench = workbench
        self._quality: BackgroundValue[Quality] = BackgroundValue(self._figures)
        self._made: dict[str, tuple[object, BackgroundValue[ReviewList]]] = {}

    def list(self, kind: str, similarity: float) -> Answer:
        """One of KINDS; `similarity` is the least cosine of near-duplicates. None while the list is not ready."""
        bench = self._workbench
        view = bench.view
        if kind in _POOR:
            made = self._quality
            quality = made.get()
            found = None if quality is None else _poor(quality, kind)
            return Answer(found, made.done, made.problem)
        key: object = (view.key, similarity) if kind == "duplicates" else view.key
        if kind == "wrong":
            key = (view.key, bench.said().version)
        if kind not in self._made or self._made[kind][0] != key:
            compute: Callable[[], ReviewList] = {
                "duplicates": partial(_duplicates, view, similarity),
                "outliers": partial(_outliers, view),
                "wrong": partial(_wrong, bench, view),
            }[kind]
            self._made[kind] = (key, BackgroundValue(lambda note: compute()))
        later = self._made[kind][1]
        return Answer(later.get(), later.done, later.problem)

    def _figures(self, note: Callable[[float], None]) -> Quality:
        def listen(what: str, done: int, total: int, more: str) -> None:
            if what == "quality":
                note(done / max(1, total))

        with reported_to(listen):
            return image_quality(self._workbench.images)


_POOR = {
    "unreadable": "cannot be read",
    "dark": "dark",
    "flat": "shows nothing",
    "blurred": "blurred",
    "tiny": "tiny",
    "shape": "oddly shaped",
}
KINDS = ("duplicates", "outliers", "wrong", *_POOR)
"""Names of the lists."""


def density_of(view: NetworkView) -> np.ndarray:
    """Mean cosine similarity of each image to its nearest neighbours, float32 `(N,)`; −1 if it cannot be read."""
    return (1 - outliers(view.index.features, _NEAREST)).nan_to_num(-1.0).numpy().astype(np.float32)


def _duplicates(view: NetworkView, similarity: float) -> ReviewList:
    ids: list[int] = []
    notes: list[str] = []
    extra: list[int] = []
    for number, group in enumerate(near_duplicates(view.index.features, similarity), 1):
        if len(ids) + len(group) > _MOST:
            break
        ids += group
        notes += [f"group {number}: keep"] + [f"group {number}: extra"] * (len(group) - 1)
        extra += group[1:]
    return ReviewList(ids, notes, extra=extra)


def _outliers(view: NetworkView) -> ReviewList:
    scores = outliers(view.index.features, _NEAREST)
    ids = outlier_ids(scores)[:_MOST].tolist()
    return ReviewList(ids, [f"cosine with the nearest {1 - float(scores[id]):.2f}" for id in ids])


def _wrong(bench: Workbench, view: NetworkView) -> ReviewList:
    """Labels given on the page that look wrong; if there are none, classes of the data."""
    said = bench.said()
    labels, words = said.codes.astype(np.int64), said.words
    if not (labels >= 0).any() and (view.images.labels != UNLABELED).any():
        labels, words = view.images.labels, tuple(view.images.classes)
    found = likely_wrong_labels(view.index.features, torch.from_numpy(labels))
    ids = found.ids[:_MOST].tolist()
    suggested = {id: words[code] for id, code in zip(ids, found.suggested.tolist(), strict=False)}
    return ReviewList(ids, [f"{words[labels[id]]}? rather {suggested[id]}" for id in ids], suggested)


def _poor(quality: Quality, kind: str) -> ReviewList:
    ids = quality.odd()[kind][:_MOST].tolist()
    return ReviewList(ids, [quality.in_words(kind, id)[0] for id in ids])
