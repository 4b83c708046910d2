"""Whitening before the search: what it does to variances, and that several processes do it together."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from csml.distributed.world import World
from csml.search.whitening import whitened
from processes import together


def features_of(rows: int = 200, channels: int = 6) -> torch.Tensor:
    """Directions of very different variance, away from the origin."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(rows, channels, generator=generator) * torch.tensor([5.0, 3, 1, 1, 0.5, 0.2]) + 1


def everything(rows: int = 200) -> torch.Tensor:
    return torch.ones(rows, dtype=torch.bool)


def test_no_power_leaves_the_cosines_to_the_mean() -> None:
    unit = F.normalize(features_of().double(), dim=1)
    for _ in range(2):
        unit = F.normalize(unit - unit.mean(0), dim=1)
    centred = F.normalize(unit - unit.mean(0), dim=1)
    found = whitened(features_of().double(), everything(), 0.0)
    torch.testing.assert_close(found @ found.T, centred @ centred.T)


@pytest.mark.parametrize("power", [0.25, 1.0])
def test_cosines_are_those_of_numpy_s_singular_vectors(power: float) -> None:
    x = features_of().double().numpy()
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    for _ in range(2):
        x -= x.mean(0)
        x /= np.linalg.norm(x, axis=1, keepdims=True)
    rows, sizes, _ = np.linalg.svd(x - x.mean(0), full_matrices=False)
    expected = rows * sizes ** (1 - power)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    found = whitened(features_of().double(), everything(), power).numpy()
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=1e-9)


def test_images_that_could_not_be_read_do_not_count() -> None:
    x, good = features_of(), everything()
    good[50:] = False
    spoiled = x.clone()
    spoiled[50:] = 1e6
    found = whitened(spoiled, good, 0.5)
    alone = whitened(x[:50], everything(50), 0.5)
    torch.testing.assert_close(found[:50] @ found[:50].T, alone @ alone.T)
    assert not found[50:].any()


def shared(world: World) -> torch.Tensor:
    share = world.share(200)
    return whitened(features_of()[share], everything()[share], 0.5, world)


def test_processes_share_one_mean_and_one_covariance() -> None:
    found = torch.cat(together(2, shared))
    alone = whitened(features_of(), everything(), 0.5)
    torch.testing.assert_close(found @ found.T, alone @ alone.T, rtol=1e-4, atol=1e-4)
