"""Ω as training uses it: searched from features, measured against the one before and against labels."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from csml.data.cache import atomic_write
from csml.errors import CsmlError
from csml.neighbors.across import search_across
from csml.world import ALONE, World

_ROWS_AT_ONCE = 65_536


@dataclass(frozen=True)
class Omega:
    """Neighbours of N images."""

    indices: np.ndarray
    """int64 `(N, k)`; the image's own id where it could not be read, or has no neighbour that was kept"""
    similarities: np.ndarray
    """float32 `(N, k)`"""
    epoch: int
    """epochs of training behind it"""


def search_omega(features: Tensor, good: Tensor, k: int, epoch: int, recall: float, world: World = ALONE) -> Omega:
    """Neighbours among the images that could be read.

    features `(n, C)` on any device and good `(n,)` on the CPU are of this process's share of N images.
    """
    rows = good.nonzero()[:, 0]  # (g,)
    counts = world.everyones((len(good), len(rows)))
    start, before = (sum(column) for column in zip((0, 0), *counts[: world.rank], strict=True))
    total = sum(images for images, _ in counts)
    ids = torch.cat(list(world.parts(rows.to(features.device) + start))).cpu()  # (G,), of all processes
    if k >= len(ids):
        raise CsmlError(f"neighbors.k: less than the {len(ids)} images that can be read, not {k}")
    readable = features if len(rows) == len(good) else features[rows.to(features.device)]  # a copy only if it must be
    own = torch.arange(before, before + len(rows), device=features.device)
    found, similarity = search_across(readable, readable, k, world, recall, own)  # (g, k), (g, k)
    indices = torch.arange(start, start + len(good), device=features.device)[:, None].repeat(1, k)
    similarities = torch.ones(len(good), k, device=features.device)
    indices[rows], similarities[rows] = ids.to(found.device)[found], similarity
    return Omega(world.gather(indices, total).cpu().numpy(), world.gather(similarities, total).cpu().numpy(), epoch)


def thinned(omega: Omega, keep: float, mutual: bool) -> Omega:
    """Without the less similar pairs, and without those that are not mutual.

    The places of what is dropped are filled with the neighbours of the same image that stay, in turn, so that drawing
    from a row is still drawing among them; where none stays, with the image itself.
    """
    if keep >= 1 and not mutual:
        return omega
    own = np.arange(len(omega.indices))[:, None]  # (N, 1)
    stays = omega.indices != own  # (N, k)
    if keep < 1:
        stays &= omega.similarities >= np.quantile(omega.similarities[stays], 1 - keep)
    if mutual:
        for rows in np.array_split(np.arange(len(own)), -(-len(own) // _ROWS_AT_ONCE)):
            theirs = omega.indices[omega.indices[rows]]  # (n, k, k)
            stays[rows] &= (theirs == rows[:, None, None]).any(axis=2)
    count = stays.sum(axis=1, keepdims=True)  # (N, 1)
    first = np.argsort(~stays, axis=1, kind="stable")  # those that stay, in their order
    column = np.take_along_axis(first, np.arange(stays.shape[1]) % np.maximum(count, 1), axis=1)
    indices = np.where(count > 0, np.take_along_axis(omega.indices, column, axis=1), own)
    similarities = np.where(count > 0, np.take_along_axis(omega.similarities, column, axis=1), np.float32(1))
    return Omega(indices, similarities, omega.epoch)


def purity(indices: np.ndarray, labels: np.ndarray) -> float | None:
    """Share of labelled pairs (image, another image) with equal labels; None without labels."""
    own, theirs = labels[:, None], labels[indices]
    known = (own >= 0) & (theirs >= 0) & (indices != np.arange(len(indices))[:, None])
    return float((own == theirs)[known].mean()) if known.any() else None


def turnover(before: np.ndarray, after: np.ndarray) -> float:
    """Share of the neighbours in `after` `(N, k)` that were not in the same row of `before`; places that hold the image
    itself are none."""
    known = after == np.arange(len(after))[:, None]  # (N, k)
    others = ~known
    for column in before.T:  # one at a time: (N, k, k) would be too much
        known |= after == column[:, None]
    return float((~known).sum() / max(1, others.sum()))


def save_omega(path: Path, omega: Omega) -> None:
    """Write indices, similarities and the epoch as .npz."""
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        np.savez(file, indices=omega.indices, similarities=omega.similarities, epoch=omega.epoch)
