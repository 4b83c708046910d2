"""What to label next: the greedy choice against brute force, and what each rule is for."""

import itertools
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from csml.evaluation.selection import By, fitted_probabilities, greedy_cover, select_next

RULES: tuple[By, ...] = ("both", "coverage", "uncertainty")


def groups(sizes: list[int], seed: int = 0, spread: float = 0.1) -> tuple[Tensor, Tensor]:
    """Features around as many directions at right angles as there are sizes, and the group of each."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    noise = spread * torch.randn(len(truth), 24, generator=generator)
    return torch.eye(24)[truth] + noise, truth


def unlabeled(features: Tensor) -> Tensor:
    return torch.full((len(features),), -1)


@given(seed=st.integers(0, 1000), n=st.integers(1, 5))
def test_the_greedy_choice_is_that_of_trying_every_row(seed: int, n: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    similarity = torch.rand(12, 30, generator=generator, dtype=torch.double)
    covered = 0.5 * torch.rand(30, generator=generator, dtype=torch.double)
    weights = torch.rand(30, generator=generator, dtype=torch.double)
    rows, gains, _ = greedy_cover(similarity, covered, weights, n)
    for row, gain in zip(rows.tolist(), gains.tolist(), strict=True):
        every = [float((torch.maximum(covered, each) - covered) @ weights) for each in similarity]
        assert gain == pytest.approx(max(every))
        assert every[row] == pytest.approx(max(every))
        covered = torch.maximum(covered, similarity[row])


def test_a_cold_start_spans_the_groups() -> None:
    """Ten picks see all of ten groups, although one has half of the images; ten at random see seven on average."""
    features, truth = groups([90, *[10] * 9])
    for rule in RULES:
        chosen = select_next(features, unlabeled(features), 10, by=rule)
        assert len(truth[chosen.ids].unique()) == 10


def test_the_first_pick_is_typical_and_the_largest_group_comes_first() -> None:
    features, truth = groups([40, *[20] * 8])
    first = select_next(features, unlabeled(features), 1).ids[0]
    assert truth[first] == 0
    centre = features[truth == 0].mean(0)
    cosines = torch.cosine_similarity(features[truth == 0], centre[None])
    assert torch.cosine_similarity(features[first], centre, dim=0) > cosines.median()


def test_outliers_come_last() -> None:
    """Farthest-first would begin with them."""
    features, _ = groups([50, 50])
    features = torch.cat([features, torch.eye(24)[-5:]])
    assert not set(range(100, 105)) & set(select_next(features, unlabeled(features), 6).ids.tolist())


def test_what_is_labelled_or_unreadable_is_never_chosen() -> None:
    features, truth = groups([20, 20, 20])
    features[5] = 0
    labels = torch.where(torch.arange(60) % 2 == 0, truth, -1)
    for rule in RULES:
        chosen = select_next(features, labels, 60, by=rule).ids.tolist()
        assert sorted(chosen) == [id for id in range(60) if id % 2 and id != 5]


def test_a_group_without_a_label_comes_before_one_that_has_one() -> None:
    features, truth = groups([40, 40, 20])
    labels = unlabeled(features)
    labels[0], labels[40] = 0, 1
    assert truth[select_next(features, labels, 1, by="coverage").ids[0]] == 2


def test_uncertainty_prefers_what_lies_between_the_classes() -> None:
    features, truth = groups([30, 30], spread=0.05)
    features[7] = torch.eye(24)[:2].sum(0)
    labels = torch.where(torch.arange(60) % 2 == 0, truth, -1)
    for probabilities in (None, torch.softmax(20 * features[:, :2], dim=1)):
        chosen = select_next(features, labels, 3, by="uncertainty", probabilities=probabilities)
        assert chosen.ids[0] == 7
        assert chosen.scores.tolist() == sorted(chosen.scores.tolist(), reverse=True)


def test_both_covers_only_what_is_uncertain() -> None:
    """Two large groups that the classifier is sure of, and a small one that it is not."""
    features, truth = groups([50, 50, 12])
    labels = unlabeled(features)
    labels[0], labels[50] = 0, 1
    sure = torch.tensor([0.99, 0.01])
    probabilities = torch.where((truth == 2)[:, None], torch.tensor([0.5, 0.5]), sure)
    chosen = select_next(features, labels, 5, probabilities=probabilities)
    assert (truth[chosen.ids] == 2).sum() >= 4
    assert all("uncertain" in reason for reason in chosen.reasons)


def test_a_reason_is_a_sentence_for_every_number() -> None:
    """Three images at right angles to everything stand for themselves alone."""
    features = torch.cat([groups([10, 10])[0], torch.eye(24)[-3:]])
    labels = unlabeled(features)
    labels[0], labels[10] = 0, 1
    reasons = select_next(features, labels, 21, probabilities=torch.full((23, 2), 0.5)).reasons
    assert "stands for 1 image, which is uncertain" in reasons
    assert "stands for 1 image" in select_next(features, unlabeled(features), 23).reasons
    for reason in reasons:
        assert re.fullmatch(
            r"stands for (0 images|1 image, which is uncertain|([2-9]|\d\d) images, many of them uncertain)", reason
        ), reason


def test_a_sample_is_weighed_where_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    features, truth = groups([40] * 10)
    monkeypatch.setattr("csml.evaluation.selection._SAMPLE", 120)
    one, same, other = (select_next(features, unlabeled(features), 20, seed=seed) for seed in (0, 0, 1))
    assert one.ids.tolist() == same.ids.tolist() != other.ids.tolist()
    assert len(truth[one.ids].unique()) == 10
    assert len(select_next(features, unlabeled(features), 300).ids.unique()) == 300


def test_every_number_of_labels_and_images() -> None:
    for count, labelled in itertools.product((1, 2, 5), (0, 1, 2, 5)):
        features, labels = torch.randn(count, 8), unlabeled(torch.zeros(count))
        labels[:labelled] = torch.arange(min(labelled, count))
        for rule in RULES:
            chosen = select_next(features, labels, 10, by=rule)
            assert len(chosen.ids) == len(chosen.scores) == len(chosen.reasons) == max(0, count - labelled)


@pytest.mark.parametrize("learnt", [30, 31, 1000])
def test_of_many_labels_those_of_every_class_are_learnt_from(learnt: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("csml.evaluation.selection._LEARNT", learnt)
    features, truth = groups([40] * 5)
    assert torch.equal(fitted_probabilities(features, truth, features).argmax(1), truth)
