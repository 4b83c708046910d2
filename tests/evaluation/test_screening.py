"""Planted duplicates, outliers and wrong labels are found; clean data raises few alarms."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from test_selection import groups

from csml.evaluation.ridge import leave_one_out
from csml.evaluation.screening import likely_wrong_labels, near_duplicates, outlier_ids, outliers


def test_copies_form_a_group_however_many_there_are() -> None:
    features, _ = groups([30, 30], spread=0.15)
    copies = features[[3] * 25 + [40]] + 0.001 * torch.randn(26, 24)
    found = near_duplicates(torch.cat([features, 2 * copies]), 0.99)
    assert found == [[3, *range(60, 85)], [40, 85]]


@given(seed=st.integers(0, 300), similarity=st.floats(0.2, 0.9))
def test_groups_are_those_of_all_pairs(seed: int, similarity: float) -> None:
    """Against the closure of the relation over all pairs, by repeated products of the matrix."""
    features = torch.randn(40, 4, generator=torch.Generator().manual_seed(seed))
    unit = F.normalize(features)
    alike = (unit @ unit.T >= similarity).float()
    for _ in range(6):
        alike = (alike @ alike).clamp(max=1)
    expected = {tuple(row.nonzero()[:, 0].tolist()) for row in alike if row.sum() > 1}
    assert {tuple(group) for group in near_duplicates(features, similarity)} == expected


def test_unreadable_images_are_no_duplicates_of_each_other() -> None:
    assert near_duplicates(torch.zeros(5, 8)) == []
    assert near_duplicates(torch.cat([torch.zeros(2, 8), torch.ones(2, 8)])) == [[2, 3]]
    assert near_duplicates(torch.zeros(0, 8)) == []


def test_what_is_far_from_everything_is_an_outlier_and_little_else() -> None:
    features, _ = groups([100, 100, 100], spread=0.1)
    features = torch.cat([features, torch.eye(24)[[20, 21]], torch.zeros(1, 24)])
    scores = outliers(features)
    assert scores[-1].isnan()
    found = outlier_ids(scores).tolist()
    assert set(found[:2]) == {300, 301}
    assert len(found) <= 2 + 6  # 2 % of the others


def test_wrong_labels_are_found_with_the_right_ones() -> None:
    features, truth = groups([60, 60, 60], spread=0.15)
    labels, wrong = truth.clone(), torch.tensor([5, 70, 130, 140])
    labels[wrong] = torch.tensor([1, 0, 0, 1])
    found = likely_wrong_labels(features, labels)
    assert set(wrong.tolist()) <= set(found.ids.tolist())
    assert len(found.ids) <= 4 + 3
    right = dict(zip(found.ids.tolist(), found.suggested.tolist(), strict=True))
    assert all(right[id] == truth[id] for id in wrong.tolist())
    assert found.confidence.tolist() == sorted(found.confidence.tolist(), reverse=True)


def test_right_labels_are_left_alone() -> None:
    features, truth = groups([60, 60, 60], spread=0.15)
    assert len(likely_wrong_labels(features, truth).ids) <= 3


def test_unlabelled_and_unreadable_images_are_not_judged() -> None:
    features, truth = groups([20, 20])
    features[3], labels = 0, truth.clone()
    labels[3], labels[5], labels[25] = 1, -1, 0
    assert likely_wrong_labels(features, labels).ids.tolist() == [25]


@pytest.mark.parametrize("labels", [[], [0], [0, 0, 0], [0, 1, 2], [-1, -1]])
def test_too_few_labels_are_not_judged(labels: list[int]) -> None:
    assert len(likely_wrong_labels(torch.randn(len(labels), 8), torch.tensor(labels, dtype=torch.long)).ids) == 0


def test_leaving_one_out_is_fitting_without_it() -> None:
    """The shortcut against a fit for every image, with the penalty that it used."""
    generator = torch.Generator().manual_seed(0)
    features, labels = torch.randn(30, 6, generator=generator), torch.randint(0, 3, (30,), generator=generator)
    scores = leave_one_out(features, labels, 3, penalties=(0.05,))
    centred = features.double() - features.double().mean(0)
    penalty = 0.05 * float(centred.square().sum())
    for row in range(30):
        kept = torch.arange(30) != row
        known = F.one_hot(labels[kept], 3).double()
        rows = features[kept].double()
        mean, shares = rows.mean(0), known.mean(0)
        weight = torch.linalg.solve(
            (rows - mean).T @ (rows - mean) + penalty * torch.eye(6, dtype=torch.double),
            (rows - mean).T @ (known - shares),
        )
        expected = (features[row].double() - mean) @ weight + shares
        assert torch.allclose(scores[row].double(), expected, atol=1e-5)
