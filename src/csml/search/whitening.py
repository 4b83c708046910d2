"""Whitening: strong directions of the features count less, so that neighbours are similar in more than one respect."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from csml.distributed.world import ALONE, World

_LEAST_VARIANCE = 1e-6
"""Share of the largest variance below which a direction counts as noise and is not amplified further."""
_AT_ONCE = 4096
"""Rows in float64 at a time: 64 MB for 2048 channels."""


def whitened(features: Tensor, good: Tensor, power: float, world: World = ALONE) -> Tensor:
    """Divide each principal direction by its standard deviation to the power `power`, and normalise.

    Args:
        features: `(n, C)`, those of this process's share of the images, on any device.
        good: `(n,)` bool: the image could be read; the others do not count.
        power: 0 leaves cosines to the mean as they are, 1 whitens.
        world: all its processes call this function, and share one mean and one covariance.

    Returns:
        `(n, C)` unit vectors, of the dtype of `features`; zeros for the images that could not be read.
    """
    mask = good.to(features.device)[:, None]  # (n, 1)
    means: list[Tensor] = []
    for _ in range(3):  # normalising moves the mean, so that two passes remove what the one before has left
        means.append(_mean(features, mask, means, world))
    covariance = features.new_zeros(features.shape[1], features.shape[1], dtype=torch.float64)  # (C, C)
    for x, _ in _centred(features, mask, means):
        covariance.addmm_(x.T, x)
    variances, directions = torch.linalg.eigh(world.all_reduce_sum(covariance))  # ascending
    scale = variances.clamp(min=_LEAST_VARIANCE * float(variances[-1])).pow(-power / 2)
    found = torch.empty_like(features)
    for rows, (x, _) in zip(found.split(_AT_ONCE), _centred(features, mask, means), strict=True):
        rows.copy_(F.normalize((x @ directions) * scale, dim=1))
    return found


def _mean(features: Tensor, mask: Tensor, means: list[Tensor], world: World) -> Tensor:
    """The mean over all processes of the unit vectors that are left after `means` were removed: `(C,)`."""
    total = features.new_zeros(features.shape[1] + 1, dtype=torch.float64)  # sums, and the number of rows
    for x, kept in _centred(features, mask, means):
        total += torch.cat([(F.normalize(x, dim=1) * kept).sum(dim=0), kept.sum().to(x)[None]])
    total = world.all_reduce_sum(total)
    return total[:-1] / total[-1].clamp(min=1)


def _centred(features: Tensor, mask: Tensor, means: list[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """Blocks of the rows `(b, C)` with their mask `(b, 1)`, normalised before each of `means` is subtracted.

    They are in float64, and made anew in every pass: a copy of all rows would take four times as much as in half
    precision.
    """
    for block, kept in zip(features.split(_AT_ONCE), mask.split(_AT_ONCE), strict=True):
        x = block.double()
        for mean in means:
            x = (F.normalize(x, dim=1) - mean) * kept
        yield x, kept
