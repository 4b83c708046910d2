"""The images and random numbers of each batch, as a function of (seed, epoch, step).

There is no random state to save: epoch and step suffice to resume a run exactly, whatever the loader workers had
prefetched.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from csml.distributed.world import Part, whole
from csml.pixels import CROP_NUMBERS

_SHARPNESS = 0.07
"""Temperature for drawing neighbours by similarity; the same as that of kNN votes."""


class BatchPlan(NamedTuple):
    """The random choices for a batch, made in the main process; workers only decode and crop."""

    anchors: np.ndarray
    """`(B,)` ids"""
    neighbors: np.ndarray
    """`(P, B)` ids, the neighbours x_p of each anchor"""
    numbers: Tensor
    """`(V, B, CROP_NUMBERS)` uniform numbers that determine the crops of V views"""
    part: Part
    """which rows of the whole batch these are"""

    def only(self, rows: slice, part: Part) -> "BatchPlan":
        """The plan of some rows of the batch."""
        return BatchPlan(self.anchors[rows], self.neighbors[:, rows], self.numbers[:, rows], part)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by value. torch would send a shared-memory handle, and a worker whose parent was just killed would
        fail to open it and print a traceback."""
        return _unpickled, (self.anchors, self.neighbors, self.numbers.numpy(), self.part)


def _unpickled(anchors: np.ndarray, neighbors: np.ndarray, numbers: np.ndarray, part: Part) -> BatchPlan:
    return BatchPlan(anchors, neighbors, torch.from_numpy(numbers), part)


def generator_for(*key: int) -> torch.Generator:
    """A CPU generator with an independent stream for each `key`.

    The length of the key is hashed too, because SeedSequence pads with zeros.
    """
    state = np.random.SeedSequence((len(key), *key)).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state) >> 1)


def epoch_batches(images: int, batch_size: int, seed: int, epoch: int) -> list[np.ndarray]:
    """Every id once, shuffled, in batches.

    The last batch may be shorter. If it would be a single image, for which BatchNorm has no statistics, that image
    joins the previous batch.
    """
    order = torch.randperm(images, generator=generator_for(seed, epoch)).numpy()
    starts = _batch_starts(images, batch_size)
    return [order[start:end] for start, end in zip(starts, [*starts[1:], images], strict=True)]


def steps_per_epoch(images: int, batch_size: int) -> int:
    """The number of batches of `epoch_batches`."""
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
    """Draw the neighbours of each anchor and the random numbers of all crops (docs/method.md#neighbors).

    Args:
        anchors: `(B,)` ids.
        omega: the neighbour sets Ω of all images `(N, k)`; None: each neighbour is the anchor itself.
        views: V, crops per anchor.
        generator: CPU generator of this step.
        positives: P, neighbours per anchor, drawn from different columns of its row.
        similarities: `(N, k)`; draw similar neighbours with higher probability. None: draw uniformly.
    """
    neighbors = np.broadcast_to(anchors, (positives, len(anchors)))
    if omega is not None:
        if similarities is None:
            columns = _columns(omega.shape[1], len(anchors), positives, generator)
        else:
            probabilities = torch.softmax(torch.from_numpy(similarities[anchors]) / _SHARPNESS, dim=1)  # (B, k)
            columns = torch.multinomial(probabilities, positives, generator=generator).T
        neighbors = omega[anchors, columns.numpy()]
    numbers = torch.rand(views, len(anchors), CROP_NUMBERS, generator=generator)
    return BatchPlan(anchors, neighbors, numbers, whole(len(anchors)))


def _columns(k: int, anchors: int, positives: int, generator: torch.Generator) -> Tensor:
    """P different random columns below k for each anchor, `(P, B)`."""
    first = torch.randint(k, (1, anchors), generator=generator)
    if positives == 1:
        return first
    steps = torch.rand(k - 1, anchors, generator=generator).argsort(dim=0)[: positives - 1] + 1  # (P − 1, B), 1 … k − 1
    return torch.cat([first, (first + steps) % k])
