"""Problems in a set of images, found from their features: near-duplicates, outliers, labels that look wrong."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from csml.evaluation.calibration import fit_temperature
from csml.evaluation.features import readable_rows
from csml.evaluation.ridge import leave_one_out
from csml.search.nearest_neighbors import top_k

SIMILARITY = 0.95
"""Cosine from which two images count as near-duplicates. Of 11 000 photos of leaves, flowers and things, 1 in 400 has
another one this similar."""
FAR = 3.5
"""Robust standard deviations above the median from which an image counts as an outlier."""
_ENOUGH = 0.9
"""Probability that is sufficient evidence, however confident the classifier usually is of the class."""
_RECALL = 0.99
"""Recall of the approximate search for many images; it hardly ever misses the most similar ones."""
_NEIGHBORS = 10
"""Number of neighbours of an image that are checked for duplicates."""


def near_duplicates(features: Tensor, similarity: float = SIMILARITY) -> list[list[int]]:
    """Groups of near-duplicates, linked directly or through others.

    Args:
        features: `(N, C)`, normalised here; rows of zeros (unreadable images) are in no group.
        similarity: least cosine of near-duplicates.

    Returns:
        Ids of each group, ascending; the largest group first.
    """
    ids = readable_rows(features).nonzero()[:, 0]
    group = np.arange(len(features))
    while len(ids) > 1:
        found, cosines = top_k(features[ids], min(_NEIGHBORS, len(ids) - 1), _RECALL)
        alike = cosines >= similarity
        rows, columns = alike.nonzero().unbind(1)
        _join(group, ids[rows].numpy(), ids[found[rows, columns]].numpy())
        # With more copies than checked neighbours, a group may be split: compare one image of each such group again.
        full = ids[alike.all(dim=1)].numpy()
        again = torch.from_numpy(np.unique(group[full]))
        if len(again) == len(ids) or found.shape[1] == len(ids) - 1:
            break
        ids = again
    order = np.argsort(group, kind="stable")
    _, starts, counts = np.unique(group[order], return_index=True, return_counts=True)
    groups = [order[start : start + count].tolist() for start, count in zip(starts, counts, strict=True) if count > 1]
    return sorted(groups, key=lambda members: (-len(members), members))


def _join(group: np.ndarray, one: np.ndarray, other: np.ndarray) -> None:
    """Join the groups `(N,)` of each pair of ids, in place. A group is named after its lowest id."""
    while True:
        lowest = np.minimum(group[one], group[other])
        if (group[one] == lowest).all() and (group[other] == lowest).all():
            return
        for ids in (one, other):
            np.minimum.at(group, group[ids], lowest)
        while (group[group] != group).any():
            group[:] = group[group]


def outliers(features: Tensor, k: int = 5) -> Tensor:
    """Distance of each image to its k nearest: 1 − mean cosine, `(N,)`; NaN if the image is unreadable."""
    scores = torch.full((len(features),), torch.nan)
    ids = readable_rows(features).nonzero()[:, 0]
    if len(ids) > 1:
        _, cosines = top_k(features[ids], min(k, len(ids) - 1), _RECALL)
        scores[ids] = 1 - cosines.mean(dim=1)
    return scores


def outlier_ids(scores: Tensor, far: float = FAR) -> Tensor:
    """Ids of outliers, the farthest first: scores `(N,)` that exceed the median by `far` robust standard deviations."""
    known = scores[~scores.isnan()]
    if len(known) < 2:
        return torch.empty(0, dtype=torch.long)
    middle = known.median()
    spread = 1.4826 * (known - middle).abs().median()
    ids = (scores > middle + far * spread.clamp(min=1e-6)).nonzero()[:, 0]
    return ids[scores[ids].argsort(descending=True)]


@dataclass(frozen=True)
class WrongLabels:
    """Images whose label is probably wrong, the most certain first."""

    ids: Tensor
    """`(W,)` int64"""
    suggested: Tensor
    """`(W,)` int64, the class predicted from all other labels"""
    confidence: Tensor
    """`(W,)` float32, probability of the suggested class minus that of the given label, 0 to 1"""


def likely_wrong_labels(features: Tensor, labels: Tensor, least: float = 0.5) -> WrongLabels:
    """Find labels that a classifier trained on the other labels contradicts with confidence.

    Each label is predicted by a linear classifier fitted to all other labels. A label is suspicious if another class is
    as probable as it is, on average, for the images with that class's label: classes that are often confused need more
    evidence (confident learning, Northcutt et al. 2021).

    Args:
        features: `(N, C)`, normalised here; rows of zeros (unreadable images) are ignored.
        labels: `(N,)` int64, −1 if unlabelled.
        least: confidence from which a label is suspicious.
    """
    ids = ((labels >= 0) & readable_rows(features)).nonzero()[:, 0]
    present, given = labels[ids].unique(return_inverse=True)
    if len(present) < 2 or int(given.bincount().max()) < 2:
        return WrongLabels(ids[:0], ids[:0], torch.zeros(0))
    counts = given.bincount()
    predictable = counts[given] > 1  # the only label of a class cannot be predicted from others
    scores = leave_one_out(F.normalize(features[ids].float(), dim=1), given, len(present))
    probabilities = (scores / fit_temperature(scores[predictable], given[predictable])).softmax(dim=1)  # (L, K)
    own = probabilities.gather(1, given[:, None])[:, 0]  # (L,)
    mean_confidence = own.new_zeros(len(present)).index_add_(0, given, own) / counts  # (K,)
    share, suggested = probabilities.max(dim=1)
    doubted = (
        predictable
        & (suggested != given)
        & (share >= mean_confidence[suggested].clamp(max=_ENOUGH))
        & (share - own >= least)
    ).nonzero()[:, 0]
    confidence = (share - own)[doubted]
    doubted = doubted[order := confidence.argsort(descending=True)]
    return WrongLabels(ids[doubted], present[suggested[doubted]], confidence[order].float())
