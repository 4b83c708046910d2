"""Who is in which batch, and with which random numbers: all of it a function of (seed, epoch, step).

Nothing random has a state that must be carried along. A run continues exactly where it stopped by knowing its epoch
and step, whatever loader workers had prefetched.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from csml.views.crop import CROP_NUMBERS
from csml.world import Part, whole

_SHARPNESS = 0.07
"""Temperature of drawing by similarity: that of the kNN's votes."""


class BatchPlan(NamedTuple):
    """What the main process decides about a batch; workers only decode and cut."""

    anchors: np.ndarray
    """`(B,)` ids"""
    neighbors: np.ndarray
    """`(P, B)` ids, the x_p of each anchor"""
    numbers: Tensor
    """`(V, B, CROP_NUMBERS)` uniform, fixing the crops of V views"""
    part: Part
    """which rows of the whole batch these are"""

    def only(self, rows: slice, part: Part) -> "BatchPlan":
        """Some rows of the batch."""
        return BatchPlan(self.anchors[rows], self.neighbors[:, rows], self.numbers[:, rows], part)


def generator_for(*key: int) -> torch.Generator:
    """A CPU generator whose stream belongs to `key` alone (its length counts: SeedSequence pads with zeros)."""
    state = np.random.SeedSequence((len(key), *key)).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state) >> 1)


def epoch_batches(images: int, batch_size: int, seed: int, epoch: int) -> list[np.ndarray]:
    """Every id once, shuffled, in batches; the last one is shorter, but never a single image BatchNorm cannot take."""
    order = torch.randperm(images, generator=generator_for(seed, epoch)).numpy()
    starts = _batch_starts(images, batch_size)
    return [order[start:end] for start, end in zip(starts, [*starts[1:], images], strict=True)]


def steps_per_epoch(images: int, batch_size: int) -> int:
    """The number of batches `epoch_batches` makes."""
    return len(_batch_starts(images, batch_size))


def _batch_starts(images: int, batch_size: int) -> list[int]:
    starts = list(range(0, images, batch_size))
    return starts[:-1] if len(starts) > 1 and images - starts[-1] == 1 else starts


def plan_batch(
    anchors: np.ndarray,
    omega: np.ndarray | None,
    views: int,
    generator: torch.Generator,
    positives: int = 1,
    similarities: np.ndarray | None = None,
) -> BatchPlan:
    """Draw each anchor's neighbours from its row of Ω `(N, k)`, no place twice, and the numbers of all crops.

    Uniformly, or with `similarities` `(N, k)` the more similar the likelier.
    """
    neighbors = np.broadcast_to(anchors, (positives, len(anchors)))
    if omega is not None:
        if similarities is None:
            columns = _columns(omega.shape[1], len(anchors), positives, generator)
        else:
            odds = torch.softmax(torch.from_numpy(similarities[anchors]) / _SHARPNESS, dim=1)  # (B, k)
            columns = torch.multinomial(odds, positives, generator=generator).T
        neighbors = omega[anchors, columns.numpy()]
    numbers = torch.rand(views, len(anchors), CROP_NUMBERS, generator=generator)
    return BatchPlan(anchors, neighbors, numbers, whole(len(anchors)))


def _columns(k: int, anchors: int, positives: int, generator: torch.Generator) -> Tensor:
    """`(P, B)`: P different numbers below k for each anchor."""
    first = torch.randint(k, (1, anchors), generator=generator)
    if positives == 1:
        return first
    steps = torch.rand(k - 1, anchors, generator=generator).argsort(dim=0)[: positives - 1] + 1  # (P − 1, B), 1 … k − 1
    return torch.cat([first, (first + steps) % k])
