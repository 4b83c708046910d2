"""Ω against brute force and faiss, duplicates included."""

import faiss
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from csml.search import nearest, nearest_neighbors, tiled_top_k, top_k
from csml.search.code_dtype import KINDS


def brute_force(features: np.ndarray, k: int) -> list[list[float]]:
    """Similarities of the k best other rows of each row, in float64."""
    unit = features.astype(np.float64) / np.linalg.norm(features.astype(np.float64), axis=1, keepdims=True)
    return [
        sorted((float(unit[i] @ unit[j]) for j in range(len(unit)) if j != i), reverse=True)[:k]
        for i in range(len(unit))
    ]


@given(
    rows=st.integers(2, 30), dim=st.integers(1, 6), k=st.integers(0, 29), seed=st.integers(0, 999), copies=st.booleans()
)
def test_equal_to_brute_force_with_and_without_duplicates(rows: int, dim: int, k: int, seed: int, copies: bool) -> None:
    k = min(k, rows - 1)
    features = np.random.default_rng(seed).normal(size=(rows, dim)).astype(np.float32)
    if copies:
        features = features[np.random.default_rng(seed).integers(0, max(1, rows // 2), rows)]
    indices, similarities = top_k(torch.from_numpy(features), k)
    assert indices.shape == similarities.shape == (rows, k)
    np.testing.assert_allclose(similarities.numpy(), np.array(brute_force(features, k)).reshape(rows, k), atol=1e-5)
    assert not (indices == torch.arange(rows)[:, None]).any()  # never itself
    assert all(len(set(row)) == k for row in indices.tolist())  # each neighbour once


def test_duplicates_are_neighbors_of_each_other() -> None:
    features = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    indices, similarities = top_k(features, 1)
    assert indices[:2, 0].tolist() == [1, 0]
    assert similarities[:2, 0].tolist() == pytest.approx([1.0, 1.0])


def test_equal_to_faiss() -> None:
    features = F.normalize(torch.randn(2000, 64, generator=torch.Generator().manual_seed(0)), dim=1)
    index = faiss.IndexFlatIP(64)
    index.add(features.numpy())
    similarities, indices = index.search(features.numpy(), 11)
    ours, ours_similarities = top_k(features, 10)
    np.testing.assert_array_equal(ours.numpy(), indices[:, 1:])
    np.testing.assert_allclose(ours_similarities.numpy(), similarities[:, 1:], atol=1e-5)


def test_blocks_and_tiles_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    features = torch.randn(300, 8, generator=torch.Generator().manual_seed(0))
    whole = top_k(features, 5)
    monkeypatch.setattr(tiled_top_k, "_MOST_ROWS", 7)
    monkeypatch.setattr(tiled_top_k, "_TILE", 128)
    torch.testing.assert_close(top_k(features, 5), whole)


def features_of_an_untrained_network(rows: int, dim: int) -> torch.Tensor:
    """Overlapping clusters far from the origin: mean cosine above 0.9, variance falling as 1 / i."""
    generator = torch.Generator().manual_seed(0)
    deviation = torch.arange(1, dim + 1) ** -0.5
    clusters = torch.randn(20, dim, generator=generator)[torch.randint(20, (rows,), generator=generator)]
    return 1.0 + 0.8 * deviation * (torch.randn(rows, dim, generator=generator) + 0.5 * clusters)


@pytest.mark.parametrize("kind", [torch.float32, torch.float16])
@pytest.mark.parametrize("codes", KINDS)
def test_candidates_find_the_neighbors_of_nearly_parallel_vectors(
    codes: str, kind: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearest_neighbors, "SMALL", 1000)
    monkeypatch.setattr(nearest_neighbors, "codes_for", lambda device: KINDS[codes])
    features = features_of_an_untrained_network(3000, 96).to(kind)
    unit = F.normalize(features.float(), dim=1)
    assert float(unit.mean(0).square().sum()) > 0.9
    exact, exact_similarities = top_k(features, 10)
    found, similarities = top_k(features, 10, recall=0.99)
    shared = (found[:, :, None] == exact[:, None, :]).any(dim=1)
    assert shared.float().mean() > 0.98
    assert not (found == torch.arange(3000)[:, None]).any()
    torch.testing.assert_close(similarities, (unit[:, None] * unit[found]).sum(2), atol=1e-5, rtol=0)
    assert (similarities <= exact_similarities + 1e-5).all()


def test_more_dimensions_are_taken_until_the_recall_is_reached(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(nearest_neighbors, "SMALL", 1000)
    caplog.set_level("INFO")
    top_k(features_of_an_untrained_network(3000, 300), 10, recall=0.5)
    top_k(torch.randn(3000, 300, generator=torch.Generator().manual_seed(0)), 10, recall=0.999)  # nothing to leave out
    easy, hard = caplog.messages
    assert "from 64 of 300 dimensions" in easy
    assert int(hard.split("from ")[1].split()[0]) > 128
    assert float(hard.split("recall ")[1].split()[0]) >= 0.999


def test_length_of_a_vector_does_not_matter() -> None:
    features = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
    scaled = features * torch.rand(50, 1).add(0.1)
    assert torch.equal(top_k(features, 5)[0], top_k(scaled, 5)[0])


def test_more_neighbors_than_there_are_is_an_error() -> None:
    with pytest.raises(ValueError, match="only 4"):
        top_k(torch.randn(5, 2), 5)
    with pytest.raises(ValueError, match="only 5"):
        nearest(torch.randn(1, 2), torch.randn(5, 2), 6)
