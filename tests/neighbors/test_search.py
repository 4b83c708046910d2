"""Ω against brute force and faiss, duplicates included."""

import faiss
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from csml.neighbors import nearest, search, top_k


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


def test_blocks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    features = torch.randn(97, 8, generator=torch.Generator().manual_seed(0))
    whole = top_k(features, 5)
    monkeypatch.setattr(search, "_BLOCK_ENTRIES", 500)
    torch.testing.assert_close(top_k(features, 5), whole)


def test_length_of_a_vector_does_not_matter() -> None:
    features = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
    scaled = features * torch.rand(50, 1).add(0.1)
    assert torch.equal(top_k(features, 5)[0], top_k(scaled, 5)[0])


def test_more_neighbors_than_there_are_is_an_error() -> None:
    with pytest.raises(ValueError, match="only 4"):
        top_k(torch.randn(5, 2), 5)
    with pytest.raises(ValueError, match="only 5"):
        nearest(torch.randn(1, 2), torch.randn(5, 2), 6)
