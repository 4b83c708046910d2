"""Spherical k-means: groups of unit vectors by cosine similarity."""

import torch
import torch.nn.functional as F
from torch import Tensor

_ROUNDS = 20
_SAMPLE = 256
"""Number of rows per cluster used to fit the centres; more would not move them."""


def spherical_kmeans(unit: Tensor, number: int, seed: int) -> Tensor:
    """Assign each row of `(N, C)` unit vectors to one of `number` ≤ N clusters: `(N,)` int64."""
    generator = torch.Generator().manual_seed(seed)
    sample = unit[torch.randperm(len(unit), generator=generator)[: _SAMPLE * number]]  # (n, C)
    centres = _spread(sample, number, generator)  # (number, C)
    for _ in range(_ROUNDS):
        similarity, nearest = (sample @ centres.T).max(dim=1)  # (n,)
        sums = torch.zeros_like(centres).index_add_(0, nearest, sample)
        empty = (torch.bincount(nearest, minlength=number) == 0).nonzero()[:, 0]
        sums[empty] = sample[similarity.argsort()[: len(empty)]]  # an empty cluster restarts at the worst-placed rows
        centres = F.normalize(sums, dim=1)
    return (unit @ centres.T).argmax(dim=1)


def _spread(sample: Tensor, number: int, generator: torch.Generator) -> Tensor:
    """Initial centres by k-means++: each is drawn with a probability that grows with its distance to the others."""
    chosen = [int(torch.randint(len(sample), (1,), generator=generator))]
    distance = torch.full((len(sample),), torch.inf)
    for _ in range(number - 1):
        distance = torch.minimum(distance, (1 - sample @ sample[chosen[-1]]).clamp(min=0))
        weights = distance if float(distance.sum()) > 0 else torch.ones_like(distance)  # all rows are equal
        chosen.append(int(torch.multinomial(weights, 1, generator=generator)))
    return sample[chosen]
