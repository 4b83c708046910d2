"""CutMix: λ is what one counts."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from csml.views import cutmix, mixup


def black_and_white(batch: int, height: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(batch, 3, height, width), torch.ones(batch, 3, height, width)


@given(
    batch=st.integers(1, 6),
    height=st.integers(1, 33),
    width=st.integers(1, 33),
    alpha=st.sampled_from([0.2, 1.0, 2.0]),
    per_sample=st.booleans(),
    seed=st.integers(0, 10_000),
)
def test_lambda_is_the_counted_share_of_the_anchor(
    batch: int, height: int, width: int, alpha: float, per_sample: bool, seed: int
) -> None:
    anchor, neighbor = black_and_white(batch, height, width)
    mixed, lam = cutmix(anchor, neighbor, alpha, torch.Generator().manual_seed(seed), per_sample)
    counted = (mixed == 0).float().mean(dim=(1, 2, 3))  # (B,)
    assert lam.shape == ((batch,) if per_sample else ())
    torch.testing.assert_close(counted, lam.expand(batch))


def test_the_pasted_part_is_one_rectangle() -> None:
    anchor, neighbor = black_and_white(1, 32, 32)
    for seed in range(50):
        mixed, _ = cutmix(anchor, neighbor, 1.0, torch.Generator().manual_seed(seed))
        pasted = mixed[0, 0] == 1
        rows, columns = pasted.any(1), pasted.any(0)
        assert torch.equal(pasted, rows[:, None] & columns[None])


def test_one_box_for_the_batch_by_default_and_one_each_on_demand(generator: torch.Generator) -> None:
    anchor, neighbor = black_and_white(16, 32, 32)
    shared, _ = cutmix(anchor, neighbor, 1.0, generator)
    assert all(torch.equal(shared[0], other) for other in shared)
    own, _ = cutmix(anchor, neighbor, 1.0, generator, per_sample=True)
    assert len({tuple(image.flatten().tolist()) for image in own}) > 8


def test_each_row_is_mixed_with_its_own_neighbor(generator: torch.Generator) -> None:
    anchor = torch.arange(4.0)[:, None, None, None].expand(4, 3, 16, 16)
    mixed, _ = cutmix(anchor, anchor + 10, 1.0, generator)
    assert torch.equal(mixed % 10, anchor)


def test_the_same_generator_gives_the_same_mixture() -> None:
    anchor, neighbor = torch.rand(2, 3, 16, 16), torch.rand(2, 3, 16, 16)
    first = cutmix(anchor, neighbor, 1.0, torch.Generator().manual_seed(7))
    second = cutmix(anchor, neighbor, 1.0, torch.Generator().manual_seed(7))
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])


def test_drawn_ratio_follows_beta() -> None:
    """Before clipping λ is Beta(1, 1); clipping only gives area back to the anchor: mean of λ above ½."""
    anchor = torch.zeros(1500, 1, 128, 128)  # large, so that rounding to pixels does not matter
    _, lam = cutmix(anchor, anchor + 1, 1.0, torch.Generator().manual_seed(0), per_sample=True)
    # E[λ] for a box of side √(1−u) around a uniform centre: 1 − E[(s − s²/4)²], s = √(1−u), u uniform
    u = torch.linspace(0, 1, 100_001, dtype=torch.float64)
    side = (1 - u).sqrt()
    assert lam.mean().item() == pytest.approx(1 - ((side - side**2 / 4) ** 2).mean().item(), abs=0.02)


@pytest.mark.parametrize("per_sample", [False, True])
def test_mixup_blends_in_the_ratio_it_tells(per_sample: bool) -> None:
    anchor, neighbor = torch.randn(5, 3, 8, 8), torch.randn(5, 3, 8, 8)
    mixed, lam = mixup(anchor, neighbor, 1.0, torch.Generator().manual_seed(0), per_sample)
    assert lam.shape == ((5,) if per_sample else ())
    share = lam.view(-1, 1, 1, 1)
    torch.testing.assert_close(mixed, share * anchor + (1 - share) * neighbor)


def test_mixup_s_ratio_follows_beta() -> None:
    """Beta(2, 2): mean 1/2, variance 1/20."""
    images = torch.zeros(20_000, 1, 1, 1)
    _, lam = mixup(images, images, 2.0, torch.Generator().manual_seed(0), per_sample=True)
    assert lam.mean().item() == pytest.approx(0.5, abs=0.01)
    assert lam.var().item() == pytest.approx(0.05, abs=0.002)
