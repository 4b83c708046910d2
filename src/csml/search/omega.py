"""The neighbour set Ω of every training image: search, selection, purity, turnover (docs/method.md#neighbors)."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from csml.distributed.world import ALONE, World
from csml.errors import CsmlError
from csml.files import atomic_write
from csml.search.distributed import distributed_search

_ROWS_AT_ONCE = 65_536


@dataclass(frozen=True)
class Omega:
    """The neighbour set Ω of N images."""

    indices: np.ndarray
    """int64 `(N, k)`; the image's own id if it could not be read or if none of its neighbours was kept"""
    similarities: np.ndarray
    """float32 `(N, k)`, cosine"""
    epoch: int
    """number of epochs that were completed before the search"""


def search_omega(features: Tensor, good: Tensor, k: int, epoch: int, recall: float, world: World = ALONE) -> Omega:
    """Search the neighbours of all images among those that could be read.

    Args:
        features: `(n, C)`, those of this process's share of the N images, on any device.
        good: `(n,)` bool on the CPU: the image could be read.
        k, recall: as in `csml.search.distributed.distributed_search`.
        epoch: number of completed epochs.
        world: all its processes call this function and get the same result.
    """
    rows = good.nonzero()[:, 0]  # (g,)
    counts = world.all_gather_object((len(good), len(rows)))
    start, before = (sum(column) for column in zip((0, 0), *counts[: world.rank], strict=True))
    total = sum(images for images, _ in counts)
    ids = torch.cat(list(world.broadcast_each(rows.to(features.device) + start))).cpu()  # (G,), over all processes
    if k >= len(ids):
        raise CsmlError(f"neighbors.k: must be less than the {len(ids)} images that can be read, not {k}")
    readable = features if len(rows) == len(good) else features[rows.to(features.device)]  # copies only if needed
    own = torch.arange(before, before + len(rows), device=features.device)
    found, similarity = distributed_search(readable, readable, k, world, recall, own)  # (g, k), (g, k)
    indices = torch.arange(start, start + len(good), device=features.device)[:, None].repeat(1, k)
    similarities = torch.ones(len(good), k, device=features.device)
    indices[rows], similarities[rows] = ids.to(found.device)[found], similarity
    return Omega(
        world.all_gather(indices, total).cpu().numpy(), world.all_gather(similarities, total).cpu().numpy(), epoch
    )


def filter_neighbors(omega: Omega, keep: float, mutual: bool) -> Omega:
    """Keep only the most similar pairs (`keep` < 1) and only mutual neighbours (`mutual`).

    The places of dropped neighbours are filled with the image's remaining ones, in turn, so that a uniform draw from
    the row still draws one of these. If none remains, the row is filled with the image's own id.
    """
    if keep >= 1 and not mutual:
        return omega
    own = np.arange(len(omega.indices))[:, None]  # (N, 1)
    kept = omega.indices != own  # (N, k)
    if keep < 1:
        kept &= omega.similarities >= np.quantile(omega.similarities[kept], 1 - keep)
    if mutual:
        for rows in np.array_split(np.arange(len(own)), -(-len(own) // _ROWS_AT_ONCE)):
            second_degree = omega.indices[omega.indices[rows]]  # (n, k, k)
            kept[rows] &= (second_degree == rows[:, None, None]).any(axis=2)
    count = kept.sum(axis=1, keepdims=True)  # (N, 1)
    kept_first = np.argsort(~kept, axis=1, kind="stable")  # columns: kept neighbours in their order, then the others
    column = np.take_along_axis(kept_first, np.arange(kept.shape[1]) % np.maximum(count, 1), axis=1)
    indices = np.where(count > 0, np.take_along_axis(omega.indices, column, axis=1), own)
    similarities = np.where(count > 0, np.take_along_axis(omega.similarities, column, axis=1), np.float32(1))
    return Omega(indices, similarities, omega.epoch)


def purity(indices: np.ndarray, labels: np.ndarray) -> float | None:
    """Share of the labelled (image, neighbour) pairs with equal labels; None if there is none."""
    own, others = labels[:, None], labels[indices]
    known = (own >= 0) & (others >= 0) & (indices != np.arange(len(indices))[:, None])
    return float((own == others)[known].mean()) if known.any() else None


def turnover(before: np.ndarray, after: np.ndarray) -> float:
    """Share of the neighbours in `after` `(N, k)` that are not in the same row of `before`.

    Entries that are the image's own id do not count as neighbours.
    """
    old = after == np.arange(len(after))[:, None]  # (N, k)
    others = ~old
    for column in before.T:  # one column at a time: (N, k, k) would need too much memory
        old |= after == column[:, None]
    return float((~old).sum() / max(1, others.sum()))


def save_omega(path: Path, omega: Omega) -> None:
    """Write indices, similarities and epoch to a .npz file."""
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        np.savez(file, indices=omega.indices, similarities=omega.similarities, epoch=omega.epoch)
