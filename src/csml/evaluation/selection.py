"""Which images to label next: those that represent many others, those the classifier is unsure of, or both."""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from csml.evaluation.features import readable_rows
from csml.evaluation.few_labels import DEFAULT_PENALTY, fit_frozen
from csml.search.nearest_neighbors import SMALL, nearest

By = Literal["both", "coverage", "uncertainty"]

_SAMPLE = 8192
"""If there are more images, a random sample is used; all similarities take 256 MB."""
_NEAR = 0.005
"""Share of the images that count as near: the distance to the last of them is the unit of the kernel width."""
_WIDTH = 0.8
"""Width of the kernel in that unit; docs/few-labels.md has the comparison."""
_AT_ONCE = 64
"""Candidates whose gain is updated at a time."""
_LEARNT = 4000
"""Largest number of labels to learn from if no probabilities are given."""


STANDS_FOR = '"stands for 9 images": 9 images are more like it than like any that is labelled or chosen before it'
"""Explanation of a reason, for users."""


@dataclass(frozen=True)
class Selection:
    """Images to label, in this order."""

    ids: Tensor
    """`(n,)` int64; fewer than requested if fewer are unlabelled and readable"""
    scores: Tensor
    """`(n,)` float32, value of each: the uncertainty, or the share of the data that it covers better, 0 to 1"""
    reasons: tuple[str, ...]
    """one for each image"""


def select_next(
    features: Tensor,
    labels: Tensor,
    n: int,
    *,
    by: By = "both",
    probabilities: Tensor | None = None,
    seed: int = 0,
) -> Selection:
    """Choose n unlabelled images to label next.

    Coverage: an image is covered to the degree that it resembles a labelled one, by a kernel of the cosine. Each pick
    is the image that adds most to the sum over all images (facility location; greedy choice reaches at least 63 % of
    the optimum). Typical images of large groups come first, outliers last. Both: each image is weighted by its
    uncertainty, so picks represent many images *that are still uncertain*.

    Args:
        features: `(N, C)` of all images, normalised here; a row of zeros is an unreadable image, never chosen.
        labels: `(N,)` int64, −1 if unlabelled.
        n: number of images to choose.
        by: rule. Without two labelled classes every rule is coverage, because there is no uncertainty yet.
        probabilities: `(N, K)` of a classifier; by default those of logistic regression on the labels.
        seed: of the sample that is drawn if there are many images.
    """
    if by not in get_args(By):
        raise ValueError(f"by = {by!r}: one of {', '.join(get_args(By))}")
    labels = labels.to(features.device)
    readable = readable_rows(features)  # (N,)
    free = (readable & (labels < 0)).nonzero()[:, 0]
    n = min(n, len(free))
    if n <= 0:
        return Selection(free[:0].cpu(), torch.zeros(0), ())
    unsure = by != "coverage" and len(labels[readable & (labels >= 0)].unique()) > 1
    if unsure and by == "uncertainty":
        scores, place = _uncertainty_of(features, labels, free, probabilities).topk(n)
        reasons = tuple(f"unsure: the two likeliest classes are {1 - score:.0%} apart" for score in scores.tolist())
        return Selection(free[place].cpu(), scores.cpu(), reasons)
    generator = torch.Generator().manual_seed(seed)
    everyone, most = readable.nonzero()[:, 0], max(_SAMPLE, n)
    candidates = _sample(free, most, generator)  # (C,)
    present = _sample(everyone, _SAMPLE * _SAMPLE // most, generator)  # (R,), the images to cover
    weights = torch.ones(len(present), device=features.device)
    if unsure:
        weights = _uncertainty_of(features, labels, present, probabilities)
    similarity, covered = _similarity(features, labels, readable, present, candidates)
    place, gains, newly = greedy_cover(similarity, covered, weights, n)
    counts = (newly * (len(everyone) / len(present))).round().int().tolist()
    reasons = tuple(_stands_for(count, unsure) for count in counts)
    return Selection(candidates[place].cpu(), (gains / weights.sum().clamp(min=1e-12)).cpu(), reasons)


def _stands_for(count: int, unsure: bool) -> str:
    if count == 1:
        return f"stands for 1 image{', which is uncertain' if unsure else ''}"
    return f"stands for {count:,} images{', many of them uncertain' if unsure and count else ''}"


def uncertainty(probabilities: Tensor) -> Tensor:
    """1 − margin between the two likeliest classes: `(N, K)` → `(N,)`; 0 is certain, 1 a tie."""
    if probabilities.shape[1] < 2:
        return probabilities.new_zeros(len(probabilities))
    first, second = probabilities.float().topk(2, dim=1).values.unbind(1)
    return 1 - (first - second)


def fitted_probabilities(features: Tensor, labels: Tensor, queries: Tensor) -> Tensor:
    """Probabilities of logistic regression: features `(N, C)`, labels `(N,)` and queries `(Q, C)` → `(Q, K)`.

    It is fast and, on frozen features, a better measure of uncertainty than kNN votes. If there are many labels,
    evenly spaced ones are used: ids follow the paths, so those of any one stretch would know only some of the classes.
    """
    known = (labels >= 0).nonzero()[:, 0]
    count = min(len(known), _LEARNT)
    known = known[torch.arange(count, device=known.device) * len(known) // count]
    present, given = labels[known].unique(return_inverse=True)
    ((weight, bias),) = fit_frozen("logistic", _unit(features[known]), given, len(present), (DEFAULT_PENALTY,))
    shares = (_unit(queries).double() @ weight.T + bias).softmax(dim=1).float()
    return shares.new_zeros(len(queries), int(present[-1]) + 1).index_copy_(1, present, shares)


def _unit(features: Tensor) -> Tensor:
    return F.normalize(features.float(), dim=1)


def _uncertainty_of(features: Tensor, labels: Tensor, ids: Tensor, probabilities: Tensor | None) -> Tensor:
    """Uncertainty `(Q,)` of the images `ids` `(Q,)`; 0 for labelled images."""
    if probabilities is None:
        found = fitted_probabilities(features, labels, features[ids])
    else:
        found = probabilities.to(features.device)[ids]
    return torch.where(labels[ids] >= 0, 0.0, uncertainty(found))


def _similarity(
    features: Tensor, labels: Tensor, readable: Tensor, present: Tensor, candidates: Tensor
) -> tuple[Tensor, Tensor]:
    """Similarity `(C, R)` of the candidates to the images present, and of the nearest labelled images to these `(R,)`.

    It is exp((cosine − 1) / width), 0 to 1. The mean feature is subtracted first, because it does not discriminate.
    """
    mean = sum((_unit(block).sum(dim=0) for block in features.split(SMALL)), features.new_zeros(())) / readable.sum()
    references = _unit(_unit(features[present]) - mean)  # (R, D)
    cosines = _unit(_unit(features[candidates]) - mean) @ references.T  # (C, R)
    near = cosines.topk(min(len(present), max(2, round(_NEAR * len(present)))), dim=1).values[:, -1]  # (C,)
    width = max(_WIDTH * float(1 - near.median()), 1e-6)
    known = readable & (labels >= 0)
    if not known.any():
        return cosines.sub_(1).div_(width).exp_(), torch.zeros(len(present), device=features.device)
    nearest_known = nearest(references, _unit(features[known]) - mean, 1)[1][:, 0]  # (R,)
    return cosines.sub_(1).div_(width).exp_(), ((nearest_known - 1) / width).exp()


def greedy_cover(similarity: Tensor, covered: Tensor, weights: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """Pick n rows greedily, each the one that adds most to Σ weight · (largest similarity to a pick).

    Args:
        similarity: `(C, R)`, at least 0.
        covered: `(R,)`, the largest similarity before the first pick.
        weights: `(R,)`, at least 0.
        n: at most C.

    Returns:
        Rows `(n,)`, the gain of each `(n,)`, and the number of columns to which it was the most similar so far `(n,)`.
    """
    # A gain shrinks as more is covered, so a gain of an earlier round is an upper bound: only the best are recomputed.
    bounds = torch.cat([(block - covered).relu_() @ weights for block in similarity.split(_AT_ONCE)])
    rows: list[Tensor] = []
    gains: list[Tensor] = []
    newly: list[Tensor] = []
    while len(rows) < n:
        best = bounds.topk(min(_AT_ONCE, len(bounds))).indices
        fresh = (similarity[best] - covered).relu_() @ weights
        bounds[best] = torch.where(bounds[best] < 0, bounds[best], fresh)
        pick = best[bounds[best].argmax()]
        if bounds[pick] < bounds.max():
            continue
        rows.append(pick)
        gains.append(bounds[pick].clone())
        newly.append((similarity[pick] > covered).sum())
        covered = torch.maximum(covered, similarity[pick])
        bounds[pick] = -1
    return torch.stack(rows), torch.stack(gains), torch.stack(newly)


def _sample(ids: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """A sample of at most `most` of them, in their order."""
    if len(ids) <= most:
        return ids
    return ids[torch.randperm(len(ids), generator=generator)[:most].sort().values.to(ids.device)]
