"""A map of images: openTSNE lays out their features in the plane, and k-means groups them."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from csml.extras import extra
from csml.reporting.clusters import spherical_kmeans
from csml.search import top_k

with extra("report", "a map of images"):
    from openTSNE import TSNEEmbedding, affinity, initialization

_PERPLEXITY, _COORDINATES = 30, 50
_EARLY, _LATE = 250, 500
_START = 1e-4
"""Standard deviation of the points that t-SNE begins with."""
_CLUSTERS = 12
_FEWEST = 8
"""Number of images from which on t-SNE is used."""


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


def embed(features: Tensor, k: int = 12, seed: int = 0) -> Map:
    """Lay out features `(N, C)` by cosine similarity."""
    unit = F.normalize(features.float(), dim=1)
    count = len(unit)
    k = min(k, count - 1)
    neighbors = top_k(unit, k)[0].numpy() if k > 0 else np.zeros((count, 0), np.int64)
    reduced = _principal(unit)  # (N, ≤ 50)
    perplexity = float(min(_PERPLEXITY, max(1, (count - 1) // 3)))
    if count < _FEWEST or float(reduced.std()) < 1e-6:
        points = np.zeros((count, 2))
        points[:, : reduced.shape[1]] = reduced[:, :2]
        settings = "The first two principal coordinates of L2-normalised features: too few different images for t-SNE"
    else:
        near = affinity.PerplexityBasedNN(
            reduced, perplexity=perplexity, metric="cosine", method="exact" if count < 1000 else "annoy",
            n_jobs=torch.get_num_threads(), random_state=seed,
        )  # fmt: skip
        layout = TSNEEmbedding(
            initialization.pca(reduced, random_state=seed), near, n_jobs=torch.get_num_threads(), random_state=seed
        )
        layout = layout.optimize(_EARLY, exaggeration=12, momentum=0.5)
        # Exaggerated attraction pulls few or dissimilar images into one point, which the second phase may not separate.
        layout *= max(1.0, _START / max(float(np.asarray(layout).std()), 1e-200))
        layout = layout.optimize(_LATE, momentum=0.8)
        points = np.asarray(layout)
        settings = (
            f"t-SNE by openTSNE: {reduced.shape[1]} principal coordinates of L2-normalised features, cosine, "
            f"perplexity {perplexity:g}, PCA initialisation, {_EARLY} iterations at exaggeration 12 and {_LATE} "
            f"without, seed {seed}"
        )
    low, high = points.min(axis=0), points.max(axis=0)
    scaled = (points - low) / np.maximum(high - low, 1e-9)
    clusters = spherical_kmeans(unit, max(1, min(_CLUSTERS, count // 5)), seed)
    return Map(scaled.astype(np.float32), neighbors, clusters.numpy(), settings)


def _principal(unit: Tensor) -> np.ndarray:
    centred = unit - unit.mean(dim=0)
    rank = min(_COORDINATES, *centred.shape)
    _, _, directions = torch.linalg.svd(centred[:: max(1, len(centred) // 20_000)], full_matrices=False)
    return (centred @ directions[:rank].T).numpy()
