"""The map of all images: coarse at first, refined while the page is open, and saved when finished."""

import logging
import threading
import zipfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from csml.files import atomic_write
from csml.reporting.layout import clusters_of, layouts, principal
from csml.search.nearest_neighbors import nearest

log = logging.getLogger("csml")

_STEP = 50
"""Iterations between two updates of the map."""
_MOST = 30_000
"""Largest number of images for t-SNE, which would otherwise take hours; the rest are placed among them."""
_BETWEEN = 4
"""Number of laid-out images between which another image is placed."""
_SCATTER = 0.002
"""Standard deviation of that position, so that equal neighbours do not give equal points."""


class MapLayout:
    """Points in the plane that may still move.

    Args:
        features: `(N, C)`, L2-normalised, of any precision.
        file: file of the finished map.
        seed: of the layout.
    """

    def __init__(self, features: torch.Tensor, file: Path, seed: int) -> None:
        self._features, self._file, self._seed = features, file, seed
        self.version = 0
        """increases when the points move"""
        self.finished = False
        self.points: np.ndarray
        """float32 `(N, 2)`, within [0, 1]"""
        self.clusters: np.ndarray
        """int64 `(N,)`"""
        self.settings: str
        """how the map was made, as a sentence"""
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        if not self._read():
            self._begin()

    def finish(self) -> None:
        """Wait until the map is finished."""
        if self._thread is not None:
            self._thread.join()

    def stop(self) -> None:
        """Stop the layout; an unfinished map is not saved."""
        self._stopped.set()

    def _read(self) -> bool:
        try:
            with np.load(self._file) as stored:
                points, clusters, settings = stored["points"], stored["clusters"], str(stored["settings"])
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):  # missing, damaged or outdated
            return False
        if len(points) != len(self._features):
            return False
        self.points, self.clusters, self.settings, self.finished = points, clusters, settings, True
        return True

    def _begin(self) -> None:
        reduced = principal(self._features)  # (N, ≤ 50)
        self.clusters = clusters_of(F.normalize(torch.from_numpy(reduced), dim=1), self._seed)
        shown = np.sort(np.random.default_rng(self._seed).permutation(len(reduced))[:_MOST])
        self.points, self.settings = next(layouts(reduced, self._seed))
        self._thread = threading.Thread(target=self._improve, args=(reduced, shown), daemon=True)
        self._thread.start()

    def _improve(self, reduced: np.ndarray, shown: np.ndarray) -> None:
        place = _Placing(reduced, shown, self._seed)
        for points, settings in layouts(reduced[shown], self._seed, _STEP):
            if self._stopped.is_set():
                return
            self.points, self.settings = place.all(points), settings + place.words
            self.version += 1
        with atomic_write(self._file) as temporary, temporary.open("wb") as written:
            np.savez(written, points=self.points, clusters=self.clusters, settings=self.settings)
        self.finished = True
        self.version += 1


class _Placing:
    """Places every image by the positions of the images that were laid out.

    Args:
        reduced: coordinates `(N, D)` that define which images are near each other.
        shown: sorted ids of the images that were laid out.
        seed: of the scatter.
    """

    def __init__(self, reduced: np.ndarray, shown: np.ndarray, seed: int) -> None:
        self.count, self.shown = len(reduced), shown
        self.rest = np.setdiff1d(np.arange(len(reduced)), shown)
        self.words = ""
        if not len(self.rest):
            return
        self.words = f"; {len(shown):,} images were laid out, the others are placed between the most similar ones"
        queries, bank = (torch.from_numpy(reduced[ids]) for ids in (self.rest, shown))
        rows, similarities = nearest(queries, bank, min(_BETWEEN, len(shown)))  # (R, 4)
        self.rows = rows.numpy()
        self.weights = similarities.sub(similarities[:, :1]).div(0.1).exp().numpy()
        self.weights /= self.weights.sum(1, keepdims=True)
        self.scatter = np.random.default_rng(seed).normal(0, _SCATTER, (len(self.rest), 2))

    def all(self, points: np.ndarray) -> np.ndarray:
        """Points `(M, 2)` of the laid-out images → points `(N, 2)` of all."""
        if not len(self.rest):
            return points
        every = np.empty((self.count, 2), np.float32)
        every[self.shown] = points
        between = (points[self.rows] * self.weights[:, :, None]).sum(1) + self.scatter
        every[self.rest] = between.clip(0, 1)
        return every
