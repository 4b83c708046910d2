"""Who is in which batch, and with which random numbers: all of it a function of (seed, epoch, step).

Nothing random has a state that must be carried along. A run continues exactly where it stopped by knowing its epoch
and step, whatever loader workers had prefetched.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from csml.views.crop import CROP_NUMBERS


class BatchPlan(NamedTuple):
    """What the main process decides about a batch; workers only decode and cut."""

    anchors: np.ndarray
    """`(B,)` ids"""
    neighbors: np.ndarray
    """`(B,)` ids, x_p of each anchor"""
    numbers: Tensor
    """`(V, B, CROP_NUMBERS)` uniform, fixing the crops of V views"""


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


def plan_batch(anchors: np.ndarray, omega: np.ndarray | None, views: int, generator: torch.Generator) -> BatchPlan:
    """Draw each anchor's neighbour uniformly from its row of Ω `(N, k)`, and the numbers of all crops."""
    neighbors = anchors
    if omega is not None:
        column = torch.randint(omega.shape[1], (len(anchors),), generator=generator).numpy()
        neighbors = omega[anchors, column]
    return BatchPlan(anchors, neighbors, torch.rand(views, len(anchors), CROP_NUMBERS, generator=generator))
