"""A map of images: openTSNE lays out their features in the plane, and k-means groups them."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from csml.extras import extra
from csml.reporting.clusters import spherical_kmeans
from csml.search import top_k

_PERPLEXITY, _COORDINATES = 30, 50
_EARLY, _LATE = 250, 500
_START = 1e-4
"""Standard deviation of the initial points of t-SNE."""
_CLUSTERS = 12
_FEWEST = 8
"""Smallest number of images for t-SNE."""
_SAMPLE = 20_000
"""Number of rows used to find principal directions, and number converted to float32 at a time."""


@dataclass(frozen=True)
class Map:
    """N points in the plane."""

    points: np.ndarray
    """float32 `(N, 2)`, within [0, 1]"""
    neighbors: np.ndarray
    """int64 `(N, k)`: the nearest of the other rows by cosine, best first"""
    clusters: np.ndarray
    """int64 `(N,)`"""
    settings: str
    """how the map was made, as a sentence"""


def lay_out(features: Tensor, k: int = 12, seed: int = 0) -> Map:
    """Lay out features `(N, C)` by cosine similarity."""
    unit = F.normalize(features.float(), dim=1)
    count = len(unit)
    k = min(k, count - 1)
    neighbors = top_k(unit, k)[0].numpy() if k > 0 else np.zeros((count, 0), np.int64)
    *_, (points, settings) = layouts(principal(unit), seed)
    return Map(points, neighbors, clusters_of(unit, seed), settings)


def layouts(reduced: np.ndarray, seed: int, step: int = _LATE) -> Iterator[tuple[np.ndarray, str]]:
    """Lay out principal coordinates `(N, ≤ 50)`: yields points `(N, 2)` in [0, 1], successively refined, and a sentence
    on how they were made. The first two coordinates come first, then t-SNE after every `step` iterations."""
    count = len(reduced)
    points = np.zeros((count, 2))
    points[:, : reduced.shape[1]] = reduced[:, :2]
    yield _scaled(points), "The first two principal coordinates of L2-normalised features"
    if count < _FEWEST or float(reduced.std()) < 1e-6:  # too few different images for t-SNE
        return
    with extra("report", "a map of images"):
        from openTSNE import TSNEEmbedding, affinity, initialization
    perplexity = float(min(_PERPLEXITY, max(1, (count - 1) // 3)))
    near = affinity.PerplexityBasedNN(
        reduced, perplexity=perplexity, metric="cosine", method="exact" if count < 1000 else "annoy",
        n_jobs=torch.get_num_threads(), random_state=seed,
    )  # fmt: skip
    layout = TSNEEmbedding(
        initialization.pca(reduced, random_state=seed), near, n_jobs=torch.get_num_threads(), random_state=seed
    )
    settings = (
        f"t-SNE by openTSNE: {reduced.shape[1]} principal coordinates of L2-normalised features, cosine, "
        f"perplexity {perplexity:g}, PCA initialisation, {_EARLY} iterations at exaggeration 12 and {_LATE} "
        f"without, seed {seed}"
    )
    for done in range(0, _EARLY, step):
        layout = layout.optimize(min(step, _EARLY - done), exaggeration=12, momentum=0.5)
        yield _scaled(np.asarray(layout)), settings
    # Exaggerated attraction pulls few or dissimilar images into one point, which the second phase may not separate.
    layout *= max(1.0, _START / max(float(np.asarray(layout).std()), 1e-200))
    for done in range(0, _LATE, step):
        layout = layout.optimize(min(step, _LATE - done), momentum=0.8)
        yield _scaled(np.asarray(layout)), settings


def clusters_of(unit: Tensor, seed: int) -> np.ndarray:
    """Groups of unit features `(N, C)`: int64 `(N,)`, at most twelve."""
    return spherical_kmeans(unit, max(1, min(_CLUSTERS, len(unit) // 5)), seed).numpy()


def principal(unit: Tensor) -> np.ndarray:
    """Unit features `(N, C)`, of any precision, → their first principal coordinates `(N, ≤ 50)` in float32."""
    sample = unit[:: max(1, len(unit) // _SAMPLE)].float()
    mean = sample.mean(dim=0)
    sample = (sample - mean).double()
    _, directions = torch.linalg.eigh(sample.T @ sample)  # (C, C), the smallest first
    chosen = directions.flip(1)[:, : min(_COORDINATES, *unit.shape)].float()
    return torch.cat([(rows.float() - mean) @ chosen for rows in unit.split(_SAMPLE)]).numpy()


def _scaled(points: np.ndarray) -> np.ndarray:
    low, high = points.min(axis=0), points.max(axis=0)
    return ((points - low) / np.maximum(high - low, 1e-9)).astype(np.float32)
