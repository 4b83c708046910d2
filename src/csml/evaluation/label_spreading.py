"""Label spreading over nearest neighbours: soft labels for unlabelled images, and a classifier on all of them.

docs/method.md#spreading
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from csml.distributed.threads import one_thread
from csml.evaluation.few_labels import CrossValidated, splits
from csml.evaluation.logistic import Linear, fit_logistic
from csml.progress import watched
from csml.search.nearest_neighbors import top_k

NEIGHBORS = 10
"""Number of neighbours that each image is linked to."""
_TEMPERATURE = 0.05
"""Temperature of the link strength as a function of the cosine of its two images."""
_SHARE = 0.9
"""Share of a soft label that comes from the neighbours in each round."""
_ROUNDS = 30
_PENALTY = 1e-4
"""Penalty of the logistic regression: lower than for a few labels, because every image has a target."""
_DIMENSIONS = 256
"""Number of principal directions for the regression, so that a fit on thousands of images takes a second."""


@dataclass(frozen=True)
class NeighborGraph:
    """Labelled images, then unlabelled images, each linked to its nearest neighbours among all of them."""

    features: Tensor
    """`(N, C)`, unit length; the labelled images come first"""
    ends: Tensor
    """`(2, E)`: the two images of each link, both ways"""
    strengths: Tensor
    """`(E,)` float64"""
    mean: Tensor
    """`(C,)`"""
    basis: Tensor
    """`(C, r)`: the principal directions of the features, orthonormal"""


def link_neighbors(labeled: Tensor, others: Tensor) -> NeighborGraph:
    """The graph of labelled images `(L, C)` and others `(M, C)`, by their unit features."""
    features = torch.cat([labeled, others]).double()
    k = min(NEIGHBORS, len(features) - 1)
    found, similarities = top_k(features, k)  # (N, k), (N, k)
    ends = torch.stack([torch.arange(len(features)).repeat_interleave(k), found.flatten()])  # (2, N·k)
    strengths = ((similarities.flatten().double() - 1) / _TEMPERATURE).exp()
    mean = features.mean(0)
    with one_thread():
        _, directions = torch.linalg.eigh((features - mean).T @ (features - mean))  # ascending
    basis = directions.flip(1)[:, :_DIMENSIONS]
    # A link in both directions counts twice: mutual neighbours more often have the same label.
    return NeighborGraph(features, torch.cat([ends, ends.flip(0)], dim=1), strengths.repeat(2), mean, basis)


def spread_labels(
    graph: NeighborGraph, rows: Tensor, labels: Tensor, classes: int, without: Tensor | None = None
) -> Tensor:
    """Soft labels `(N, classes)`: 1 for the class of a labelled image, else propagated from neighbours.

    Each class starts with the same weight, however many labels it has. Rows that no label reaches are 0.

    Args:
        graph: the images.
        rows, labels: `(n,)`: images with a label, and their labels.
        classes: number of classes.
        without: `(m,)`: images that are left out of the graph and get no label.
    """
    count = len(graph.features)
    gone = torch.zeros(count, dtype=torch.bool)
    if without is not None:
        gone[without] = True
    kept = ~gone[graph.ends].any(0)
    ends, strengths = graph.ends[:, kept], graph.strengths[kept]
    total = torch.zeros(count, dtype=torch.float64).index_add_(0, ends[0], strengths)
    root = total.clamp_min(torch.finfo(torch.float64).tiny).rsqrt()
    weights = strengths * root[ends[0]] * root[ends[1]]
    links = torch.sparse_coo_tensor(ends, weights, (count, count), check_invariants=True).coalesce()
    start = torch.zeros(count, classes, dtype=torch.float64)
    start[rows, labels] = 1 / torch.bincount(labels, minlength=classes).double()[labels]
    spread = start
    with one_thread():
        for _ in range(_ROUNDS):
            spread = _SHARE * torch.sparse.mm(links, spread) + (1 - _SHARE) * start
    spread = spread.masked_fill(gone[:, None], 0.0)
    mass = spread.sum(1, keepdim=True)  # (N, 1)
    shares = torch.where(mass > 0, spread / mass.clamp_min(torch.finfo(torch.float64).tiny), 0.0)
    shares[rows] = F.one_hot(labels, classes).double()
    return shares


def fit_spread(
    graph: NeighborGraph, rows: Tensor, labels: Tensor, classes: int, without: Tensor | None = None
) -> Linear:
    """A linear layer on unit features, fitted to labels and soft labels; arguments as for `spread_labels`."""
    shares = spread_labels(graph, rows, labels, classes, without)
    reached = shares.sum(1) > 0
    seen = (graph.features[reached] - graph.mean) @ graph.basis  # (n, r)
    ((weight, bias),) = fit_logistic(seen, shares[reached], classes, (_PENALTY,))
    weight = weight @ graph.basis.T  # (classes, C)
    return weight, bias - weight @ graph.mean


def try_spread(graph: NeighborGraph, labels: Tensor, classes: int, folds: np.ndarray) -> CrossValidated:
    """Cross-validate `fit_spread` on labels `(L,)`. Held-out images are not in the graph, like future images."""
    scores = torch.zeros(*folds.shape, classes, dtype=torch.float64)
    held = torch.zeros(folds.shape, dtype=torch.bool)
    parts = splits(folds)
    for number, kept, out in watched(parts, "cross-validation", total=len(parts)):
        weight, bias = fit_spread(graph, kept, labels[kept], classes, out)
        scores[number, out] = graph.features[out] @ weight.T + bias
        held[number, out] = True
    return CrossValidated("spread", scores, held, labels, kept=1 - 1 / (int(folds.max()) + 1))
