"""Spherical k-means: clear groups are found, and the objective is about that of faiss."""

import faiss
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from csml.reporting.clusters import spherical_kmeans


def groups(number: int, spread: float, seed: int) -> tuple[Tensor, Tensor]:
    """40 unit vectors around each of some orthogonal directions, and which they belong to."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(number).repeat_interleave(40)
    return F.normalize(
        torch.eye(16)[labels] + spread * torch.randn(len(labels), 16, generator=generator), dim=1
    ), labels


def cohesion(unit: Tensor, clusters: Tensor) -> float:
    """Mean cosine to the centre of the own cluster."""
    sums = torch.zeros(int(clusters.max()) + 1, unit.shape[1]).index_add_(0, clusters, unit)
    return float((unit * F.normalize(sums, dim=1)[clusters]).sum(1).mean())


@pytest.mark.parametrize("seed", range(5))
def test_clear_groups_are_found(seed: int) -> None:
    unit, labels = groups(3, 0.05, seed)
    found = spherical_kmeans(unit, 3, seed)
    assert len(set(zip(labels.tolist(), found.tolist(), strict=True))) == len(set(found.tolist())) == 3


def test_as_tight_as_those_of_faiss() -> None:
    unit, _ = groups(8, 0.3, seed=0)
    theirs = faiss.Kmeans(16, 8, niter=20, nredo=5, seed=0, spherical=True, min_points_per_centroid=1)
    theirs.train(unit.numpy())
    expected = torch.from_numpy(theirs.index.search(unit.numpy(), 1)[1][:, 0].astype(np.int64))
    best = max(cohesion(unit, spherical_kmeans(unit, 8, seed)) for seed in range(5))
    assert best == pytest.approx(cohesion(unit, expected), rel=0.02)


def test_the_seed_decides_and_equal_rows_do_no_harm() -> None:
    unit, _ = groups(4, 0.3, seed=0)
    assert torch.equal(spherical_kmeans(unit, 6, 1), spherical_kmeans(unit, 6, 1))
    same = spherical_kmeans(F.normalize(torch.ones(10, 4), dim=1), 3, 0)
    assert same.shape == (10,) and same.dtype == torch.int64
