"""The loss against the paper's formulas, written out one exponential at a time in float64."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from csml.losses import info_nce, multi_positive_info_nce


def unit(*shape: int, seed: int) -> Tensor:
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return F.normalize(values, dim=-1)


def written_out(query: Tensor, positives: Tensor, weights: Tensor, negatives: Tensor, tau: float) -> Tensor:
    """Σ_p w_p · −log( e^{q·k_p/τ} / (e^{q·k_p/τ} + Σ_i e^{q·n_i/τ}) ), loop by loop."""
    losses = []
    for b in range(len(query)):
        loss = torch.zeros((), dtype=torch.float64)
        for p in range(len(positives)):
            pulled = torch.exp(torch.dot(query[b], positives[p, b]) / tau)
            pushed = sum(torch.exp(torch.dot(query[b], n) / tau) for n in negatives)
            loss = loss - (weights[p, b] if weights.dim() == 2 else weights[p]) * torch.log(pulled / (pulled + pushed))
        losses.append(loss)
    return torch.stack(losses)


@given(
    batch=st.integers(1, 5),
    positives=st.integers(1, 3),
    negatives=st.integers(1, 9),
    dim=st.integers(2, 8),
    tau=st.sampled_from([0.07, 0.2, 1.0]),
    per_sample=st.booleans(),
    seed=st.integers(0, 10_000),
)
def test_loss_and_gradients_equal_the_formula(
    batch: int, positives: int, negatives: int, dim: int, tau: float, per_sample: bool, seed: int
) -> None:
    query = unit(batch, dim, seed=seed).requires_grad_()
    keys = unit(positives, batch, dim, seed=seed + 1).requires_grad_()
    queue = unit(negatives, dim, seed=seed + 2)
    shape = (positives, batch) if per_sample else (positives,)
    weights = torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    ours = multi_positive_info_nce(query, keys, weights, queue, tau)
    naive = written_out(query, keys, weights, queue, tau)
    torch.testing.assert_close(ours, naive, rtol=1e-9, atol=1e-9)
    ours_gradients = torch.autograd.grad(ours.sum(), (query, keys))
    naive_gradients = torch.autograd.grad(naive.sum(), (query, keys))
    torch.testing.assert_close(ours_gradients, naive_gradients, rtol=1e-8, atol=1e-9)


@given(
    negatives=st.integers(2, 40),
    chunk=st.integers(1, 45),
    masked=st.booleans(),
    seed=st.integers(0, 10_000),
)
def test_chunks_change_neither_loss_nor_gradients(negatives: int, chunk: int, masked: bool, seed: int) -> None:
    query, keys = unit(5, 6, seed=seed).requires_grad_(), unit(2, 5, 6, seed=seed + 1).requires_grad_()
    queue = unit(negatives, 6, seed=seed + 2).requires_grad_()
    weights = torch.tensor([0.3, 0.7], dtype=torch.float64)
    ignore = None
    if masked:
        ignore = torch.rand(5, negatives, generator=torch.Generator().manual_seed(seed)) < 0.5
        ignore[0] = True  # a query without any negative
    plain = info_nce(query, keys, weights, queue, 0.1, ignore)
    chunked = info_nce(query, keys, weights, queue, 0.1, ignore, chunk)
    torch.testing.assert_close(chunked.loss, plain.loss)
    torch.testing.assert_close(chunked.hardest, plain.hardest)
    scale = torch.arange(1.0, 6.0, dtype=torch.float64)
    ours = torch.autograd.grad((chunked.loss * scale).sum(), (query, keys, queue))
    theirs = torch.autograd.grad((plain.loss * scale).sum(), (query, keys, queue))
    torch.testing.assert_close(ours, theirs)


def test_one_positive_is_moco_s_cross_entropy() -> None:
    query, key, queue = unit(16, 32, seed=0), unit(16, 32, seed=1), unit(100, 32, seed=2)
    logits = torch.cat([(query * key).sum(1, keepdim=True), query @ queue.T], dim=1) / 0.2
    expected = F.cross_entropy(logits, torch.zeros(16, dtype=torch.long), reduction="none")
    ours = multi_positive_info_nce(query, key[None], torch.ones(1), queue, 0.2)
    torch.testing.assert_close(ours, expected)


def test_ignored_negatives_do_not_count() -> None:
    query, key, queue = unit(4, 8, seed=0), unit(1, 4, 8, seed=1), unit(10, 8, seed=2)
    ignore = torch.zeros(4, 10, dtype=torch.bool)
    ignore[:, 3:] = True
    ours = multi_positive_info_nce(query, key, torch.ones(1), queue, 0.2, ignore)
    torch.testing.assert_close(ours, multi_positive_info_nce(query, key, torch.ones(1), queue[:3], 0.2))


def test_a_query_whose_negatives_are_all_ignored_has_no_loss_and_no_nan() -> None:
    query = unit(2, 8, seed=0).requires_grad_()
    ignore = torch.ones(2, 5, dtype=torch.bool)
    loss = multi_positive_info_nce(query, unit(1, 2, 8, seed=1), torch.ones(1), unit(5, 8, seed=2), 0.2, ignore)
    loss.sum().backward()
    assert loss.tolist() == [0.0, 0.0]
    assert query.grad is not None
    assert torch.isfinite(query.grad).all()


def test_equal_similarities_give_the_chance_level() -> None:
    same = unit(1, 8, seed=0)
    loss = multi_positive_info_nce(same, same[None], torch.ones(1), same.expand(1023, 8), 0.2)
    assert loss.item() == pytest.approx(math.log(1 + 1023))


def test_low_temperature_does_not_overflow() -> None:
    query, queue = unit(4, 8, seed=0).float(), unit(50, 8, seed=2).float()
    assert torch.isfinite(multi_positive_info_nce(query, query[None], torch.ones(1), queue, 1e-3)).all()


def test_autocast_does_not_lower_the_precision() -> None:
    query, key, queue = unit(8, 64, seed=0).float(), unit(1, 8, 64, seed=1).float(), unit(200, 64, seed=2).float()
    plain = multi_positive_info_nce(query, key, torch.ones(1), queue, 0.07)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(multi_positive_info_nce(query, key, torch.ones(1), queue, 0.07), plain)


def test_similarities_beside_the_loss() -> None:
    query, key, queue = unit(6, 8, seed=0), unit(2, 6, 8, seed=1), unit(20, 8, seed=2)
    result = info_nce(query, key, torch.tensor([0.5, 0.5]), queue, 0.2)
    torch.testing.assert_close(result.positive, (query * key).sum(-1))
    torch.testing.assert_close(result.hardest, (query @ queue.T).max(1).values)
