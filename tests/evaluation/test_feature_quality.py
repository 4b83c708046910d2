"""Signals of good features, against their definitions in numpy."""

import numpy as np
import pytest
import torch

from csml.evaluation.feature_quality import leave_one_out_knn, neighbor_agreement, rank_me

SEEDS = range(3)


@pytest.mark.parametrize("seed", SEEDS)
def test_rank_me_is_the_exponential_of_the_entropy_of_singular_values(seed: int) -> None:
    features = np.random.default_rng(seed).normal(size=(40, 12))
    shares = np.linalg.svd(features, compute_uv=False)
    shares /= shares.sum()
    assert rank_me(torch.from_numpy(features)) == pytest.approx(np.exp(-(shares * np.log(shares)).sum()), rel=1e-9)


def test_rank_me_counts_equal_directions_and_ignores_empty_ones() -> None:
    features = torch.zeros(30, 8)
    features[:10, 0] = features[10:20, 1] = features[20:, 2] = 1
    assert rank_me(features) == pytest.approx(3, rel=1e-6)


def test_features_agree_fully_with_their_rotation_and_by_chance_with_others() -> None:
    numbers = torch.Generator().manual_seed(0)
    features = torch.randn(200, 16, generator=numbers)
    rotation = torch.linalg.qr(torch.randn(16, 16, generator=numbers))[0]
    assert neighbor_agreement(features, 3 * features @ rotation) > 0.99  # ties of float32 apart
    others = torch.randn(200, 16, generator=numbers)
    assert neighbor_agreement(features, others) == pytest.approx(10 / 199, abs=0.03)


@pytest.mark.parametrize("seed", SEEDS)
def test_leave_one_out_knn_is_the_vote_of_the_others(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, 60)
    features = rng.normal(size=(60, 6)) + 0.8 * np.eye(4, 6)[labels]
    labels[::7] = -1
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    right = []
    for i in np.flatnonzero(labels >= 0):
        others = np.array([j for j in np.flatnonzero(labels >= 0) if j != i])
        nearest = others[np.argsort(-unit[others] @ unit[i])[:5]]
        votes = np.zeros(4)
        np.add.at(votes, labels[nearest], np.exp(unit[nearest] @ unit[i] / 0.07))
        right.append(votes.argmax() == labels[i])
    found = leave_one_out_knn(torch.from_numpy(features), torch.from_numpy(labels), k=5)
    assert found == pytest.approx(np.mean(right), abs=1e-12)


def test_without_labels_there_is_no_accuracy() -> None:
    assert leave_one_out_knn(torch.randn(5, 3), torch.full((5,), -1)) is None
