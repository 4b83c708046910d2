"""Whitening before the search: what it does to variances, and that several processes do it together."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

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


def cosines_by_numpy(features: torch.Tensor, power: float) -> np.ndarray:
    """By singular vectors of all rows at once, in float64."""
    x = features.double().numpy()
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    for _ in range(2):
        x -= x.mean(0)
        x /= np.linalg.norm(x, axis=1, keepdims=True)
    rows, sizes, _ = np.linalg.svd(x - x.mean(0), full_matrices=False)
    expected = rows * sizes ** (1 - power)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    return expected @ expected.T


@pytest.mark.parametrize("power", [0.25, 1.0])
@pytest.mark.parametrize("at_once", [1, 64, 4096])
def test_cosines_are_those_of_numpy_s_singular_vectors(
    power: float, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("csml.search.whitening._AT_ONCE", at_once)
    found = whitened(features_of().double(), everything(), power).numpy()
    np.testing.assert_allclose(found @ found.T, cosines_by_numpy(features_of(), power), atol=1e-9)


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-6), (torch.bfloat16, 2e-2)])
def test_only_the_result_is_rounded(dtype: torch.dtype, error: float) -> None:
    features = features_of().to(dtype)
    found = whitened(features, everything(), 0.25)
    assert found.dtype == dtype
    found = found.double()
    np.testing.assert_allclose(found @ found.T, cosines_by_numpy(features, 0.25), atol=error)


class LongestInFloat64(TorchDispatchMode):
    """Remembers the number of rows of the longest matrix in float64."""

    rows = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor) and made.dtype == torch.float64 and made.ndim == 2:
            self.rows = max(self.rows, len(made))
        return made


def test_there_is_never_a_copy_of_all_features_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("csml.search.whitening._AT_ONCE", 64, raising=False)
    with LongestInFloat64() as longest:
        whitened(features_of(), everything(), 0.5)
    assert 0 < longest.rows <= 64


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
