"""The workbench: all images of a run with the outputs of a network, the labels of users, and suggestions from both."""

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from csml.data.decode import Decodable
from csml.data.images import UNLABELED, Images
from csml.evaluation.selection import By, select_next
from csml.explorer.background import BackgroundValue
from csml.explorer.columns import Column
from csml.explorer.network_view import NetworkView
from csml.explorer.store import Store
from csml.explorer.suggestions import (
    NOTHING,
    Estimate,
    Suggestions,
    by_classifier,
    by_neighbors_classes,
    by_votes,
    estimate,
)
from csml.reporting.runs import FinishedRun

_UPLOADS = 32
"""Number of uploaded pictures to keep."""
_LESS = 0.5
"""Weight of the negative examples of a search relative to the positive ones."""

Pairs = list[tuple[int, float]]


@dataclass(frozen=True)
class LabelSnapshot:
    """The labels of N images at one version of the store."""

    version: int
    words: tuple[str, ...]
    codes: np.ndarray
    """int32 `(N,)`, indices into `words`, −1 without a label"""

    def counts(self) -> dict[str, int]:
        """Labels in use, in the order of their first use, and how many images have each."""
        found = np.bincount(self.codes[self.codes >= 0], minlength=len(self.words))
        return {word: int(count) for word, count in zip(self.words, found, strict=True) if count}


class Workbench:
    """The state that the page shows; thread-safe.

    Args:
        run: the explored run.
        view: its network, or the latest one fine-tuned from it.
        store: labels and tags.
        columns: further columns of the data.
    """

    def __init__(self, run: FinishedRun, view: NetworkView, store: Store, columns: Sequence[Column]) -> None:
        self.run, self.store, self.columns = run, store, tuple(columns)
        self.names = [view.images.name(id) for id in range(len(view.images))]
        self.ids = {name: id for id, name in enumerate(self.names)}
        self.selection: list[int] = []
        """ids selected in the page, by the last tab that did so"""
        self._lock = threading.RLock()
        self._uploads: OrderedDict[int, torch.Tensor] = OrderedDict()
        self._uploaded = 0
        self._said: LabelSnapshot | None = None
        self._suggested: tuple[object, Suggestions | None] = (None, None)
        self._estimated: tuple[object, Estimate | None] = (None, None)
        self.prefers_votes = False
        """suggest by kNN votes even if there is a classifier"""
        self.view = view
        self.show(view, "the classifier of this run")

    @property
    def images(self) -> Images:
        return self.view.images

    def show(self, view: NetworkView, source: str) -> None:
        """Switch to another network; `source` describes the source of suggestions if it is a classifier."""
        with self._lock:
            if self.view.layout is not view.layout:
                self.view.layout.stop()
            self.view, self._source = view, source
            self._suggested = self._estimated = (None, None)
            self._uploads.clear()  # features of the previous network
        self._by_classes = BackgroundValue(lambda note: self._vote_by_classes(view))

    def said(self) -> LabelSnapshot:
        """The current labels."""
        with self._lock:
            version = self.store.version
            if self._said is None or self._said.version != version:
                words = self.store.words("label")
                place = {word: code for code, word in enumerate(words)}
                codes = np.full(len(self.names), NOTHING, np.int32)
                for name, label in self.store.labels().items():
                    if (id := self.ids.get(name)) is not None:
                        codes[id] = place[label]
                self._said = LabelSnapshot(version, tuple(words), codes)
            return self._said

    def label(self, labels: Mapping[int, str | None], existing: str) -> tuple[int, dict[str, int]]:
        """Label images, or remove labels (None).

        Args:
            labels: by id.
            existing: for an image with another label: "replace" it, "keep" it, or "ask", which changes nothing if there
                is any such image.

        Returns:
            The number of changed images, and the number of images with each other label.
        """
        with self._lock:
            said = self.said()
            wanted = {id: label for id, label in labels.items() if self._now(said, id) != label}
            others = {id: now for id in wanted if (now := self._now(said, id)) is not None}
            if existing == "keep":
                wanted = {id: label for id, label in wanted.items() if id not in others}
            counts: dict[str, int] = {}
            for word in others.values():
                counts[word] = counts.get(word, 0) + 1
            if existing == "ask" and others:
                return 0, counts
            self.store.set_labels({self.names[id]: label for id, label in wanted.items()}, _about(wanted))
            return len(wanted), counts

    def tag(self, ids: Sequence[int], tag: str, on: bool) -> int:
        """Add or remove a tag; returns how many images changed."""
        with self._lock:
            tagged = self.store.tags()
            names = [name for name in (self.names[id] for id in ids) if (tag in tagged.get(name, ())) != on]
            about = f"{_images(len(names))} tagged {tag}" if on else f"tag {tag} taken from {_images(len(names))}"
            self.store.set_tag(names, tag, on, about)
            return len(names)

    def suggestions(self) -> Suggestions | None:
        """The suggested labels; None if there is no source of suggestions yet."""
        with self._lock:
            said, view = self.said(), self.view
            classifier = view.class_probabilities is not None and not self.prefers_votes
            key: object = (view.key, "classifier") if classifier else (view.key, said.version)
            if self._suggested[0] == key:
                return self._suggested[1]
        found = self._suggest(said, view, classifier)
        with self._lock:
            if self.view is view and found is not None:
                self._suggested = (key, found)
        return found

    def _suggest(self, said: LabelSnapshot, view: NetworkView, classifier: bool) -> Suggestions | None:
        if classifier and view.class_probabilities is not None:
            return by_classifier(view.class_probabilities, self._source)
        codes, readable = torch.from_numpy(said.codes.astype(np.int64)), torch.from_numpy(view.readable)
        codes = codes.where(readable, NOTHING)
        known = int((codes >= 0).sum())
        if known >= 2:
            source = f"votes of the {known:,} labels given so far"
            return by_votes(view.index.features, codes, said.words, readable, source)
        if (view.images.labels != UNLABELED).any() and len(view.images) > 1:
            return self._by_classes.get()
        return None

    def _vote_by_classes(self, view: NetworkView) -> Suggestions:
        labels, readable = torch.from_numpy(view.images.labels), torch.from_numpy(view.readable)
        return by_neighbors_classes(view.index.features, labels, tuple(view.images.classes), readable)

    def estimate(self) -> Estimate | None:
        """Estimated accuracy of kNN votes of the labels."""
        with self._lock:
            said, view = self.said(), self.view
            key = (view.key, said.version)
            if self._estimated[0] != key:
                known = np.flatnonzero((said.codes >= 0) & view.readable)
                features = view.index.features[torch.from_numpy(known)].float()
                self._estimated = (key, estimate(features, torch.from_numpy(said.codes[known].astype(np.int64))))
            return self._estimated[1]

    def next_to_label(self, n: int, by: By) -> tuple[list[int], list[str]]:
        """Ids of images to label next, with reasons."""
        view, codes = self.view, torch.from_numpy(self.said().codes.astype(np.int64))
        matrix = (
            None if view.class_probabilities is None or self.prefers_votes else view.class_probabilities.probabilities
        )
        chosen = select_next(view.index.features, codes, n, by=by, probabilities=matrix)
        return chosen.ids.tolist(), list(chosen.reasons)

    def similar(self, positive: Sequence[int], negative: Sequence[int], uploads: Sequence[int], k: int) -> Pairs:
        """Images similar to `positive` and to the uploaded pictures, and dissimilar to `negative`."""
        features = self.view.index.features
        with self._lock:
            outside = [self._uploads[number] for number in uploads if number in self._uploads]
        seen = [id for id in positive if self.view.readable[id]]  # an unreadable image has no feature
        wanted = [F.normalize(features[id : id + 1].float(), dim=1) for id in seen] + outside
        if not wanted:
            return []
        query = torch.cat(wanted).mean(0, keepdim=True)  # (1, C)
        if negative:
            query = query - _LESS * features[torch.tensor(list(negative))].float().mean(0, keepdim=True)
        known = {*positive, *negative, *np.flatnonzero(~self.view.readable).tolist()}
        ids, similarities = self.view.index.search(query, min(k + len(known), len(self.names)))
        pairs = zip(ids[0].tolist(), similarities[0].tolist(), strict=True)
        return [(id, similarity) for id, similarity in pairs if id not in known][:k]

    def upload(self, picture: Decodable) -> int:
        """Store an uploaded picture; returns its number for `similar`."""
        with self._lock:
            feature = F.normalize(self.view.feature(picture), dim=1)
            self._uploaded += 1
            self._uploads[self._uploaded] = feature
            while len(self._uploads) > _UPLOADS:
                self._uploads.popitem(last=False)
            return self._uploaded

    def find(self, text: str, most: int) -> list[int]:
        """Images whose name contains the text, ignoring case."""
        wanted, found = text.casefold(), []
        for id, name in enumerate(self.names):
            if wanted in name.casefold():
                found.append(id)
                if len(found) == most:
                    break
        return found

    def _now(self, said: LabelSnapshot, id: int) -> str | None:
        return said.words[said.codes[id]] if said.codes[id] >= 0 else None


def _about(labels: Mapping[int, str | None]) -> str:
    given = {label for label in labels.values() if label is not None}
    if not given:
        return f"label taken from {_images(len(labels))}"
    return f"{_images(len(labels))} labelled {next(iter(given)) if len(given) == 1 else 'as suggested'}"


def _images(count: int) -> str:
    return f"{count:,} image{'' if count == 1 else 's'}"
