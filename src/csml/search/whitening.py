"""Whitening: strong directions of the features count less, so that neighbours are similar in more than one respect."""

import torch
import torch.nn.functional as F
from torch import Tensor

from csml.distributed.world import ALONE, World

_LEAST_VARIANCE = 1e-6
"""Share of the largest variance below which a direction counts as noise and is not amplified further."""


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
    x = F.normalize(features.double(), dim=1)
    for _ in range(2):  # the second pass removes the mean left by the first normalisation
        x = F.normalize((x - _mean(x, mask, world)) * mask, dim=1)
    x = (x - _mean(x, mask, world)) * mask
    covariance = world.all_reduce_sum(x.T @ x)  # (C, C)
    variances, directions = torch.linalg.eigh(covariance)  # ascending
    scale = variances.clamp(min=_LEAST_VARIANCE * float(variances[-1])).pow(-power / 2)
    return F.normalize((x @ directions) * scale, dim=1).to(features.dtype)


def _mean(x: Tensor, mask: Tensor, world: World) -> Tensor:
    """Over all processes, of the rows where `mask` `(n, 1)`: `(1, C)`."""
    total = world.all_reduce_sum(torch.cat([(x * mask).sum(dim=0), mask.sum().to(x)[None]]))  # (C + 1,)
    return (total[:-1] / total[-1].clamp(min=1))[None]
