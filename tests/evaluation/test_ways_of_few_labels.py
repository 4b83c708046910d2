"""Cross-validation on a few labels: folds, what is chosen, and what is expected."""

from dataclasses import replace

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_logistic import clusters

from csml.evaluation.few_labels import CrossValidated, choose, splits, try_frozen
from csml.evaluation.folds import ALWAYS_KEPT, draw_folds
from csml.evaluation.knn import knn_predict


@given(counts=st.lists(st.integers(1, 12), min_size=2, max_size=6), seed=st.integers(0, 1000))
def test_folds_are_stratified_disjoint_and_whole(counts: list[int], seed: int) -> None:
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    folds = draw_folds(labels, seed)
    assert (len(folds) == 0) == (max(counts) == 1)
    for row in folds:
        for label, count in enumerate(counts):
            sizes = np.bincount(row[labels == label] + 1, minlength=row.max() + 2)
            if count == 1:
                assert sizes[ALWAYS_KEPT + 1] == 1
            else:
                assert sizes[0] == 0 and sizes[1:].max() - sizes[1:].min() <= 1
                assert sizes[1:].max() < count  # a label to learn from is left
    tested: list[set[int]] = [set() for _ in folds]
    for number, kept, out in splits(folds):
        assert not set(kept.tolist()) & set(out.tolist()) and len(kept) + len(out) == len(labels)
        assert not tested[number] & set(out.tolist())
        tested[number] |= set(out.tolist())
    assert all(
        each == set(np.flatnonzero(row != ALWAYS_KEPT).tolist()) for each, row in zip(tested, folds, strict=True)
    )
    assert np.array_equal(folds, draw_folds(labels, seed))


def test_very_few_labels_are_divided_several_times() -> None:
    assert draw_folds(np.repeat(np.arange(5), 5), 0).shape == (4, 25)
    assert draw_folds(np.repeat(np.arange(20), 20), 0).shape == (1, 400)


def made(how: str, right: torch.Tensor) -> CrossValidated:
    """Something tried whose predictions for N labels of two classes are right or wrong as told."""
    labels = torch.zeros(len(right), dtype=torch.long)
    scores = torch.stack([right.double(), 1 - right.double()], 1)[None]
    return CrossValidated(how, scores, torch.ones(1, len(right), dtype=torch.bool), labels, kept=0.8)


@given(seed=st.integers(0, 10_000), shares=st.lists(st.floats(0.1, 0.9), min_size=2, max_size=5))
def test_what_is_chosen_is_at_most_a_standard_error_behind_any_other(seed: int, shares: list[float]) -> None:
    rng = np.random.default_rng(seed)
    rights = [rng.random(40) < share for share in shares]
    tried = [made(str(number), torch.from_numpy(right)) for number, right in enumerate(rights)]
    chosen = int(choose(tried).how)
    best = int(np.argmax([right.mean() for right in rights]))
    behind = rights[best].astype(float) - rights[chosen].astype(float)
    assert behind.mean() <= behind.std(ddof=1) / 40**0.5 + 1e-12
    for earlier in range(chosen):  # what would have been preferred is further behind
        behind = rights[best].astype(float) - rights[earlier].astype(float)
        assert behind.mean() > behind.std(ddof=1) / 40**0.5 - 1e-12


def test_ties_go_to_the_first() -> None:
    right = torch.arange(10) < 7
    assert choose([made("simple", right), made("complex", right)]).how == "simple"


def test_scores_are_out_of_fold() -> None:
    """Random labels cannot be predicted from features that separate them perfectly when seen."""
    rng = np.random.default_rng(0)
    features = torch.nn.functional.normalize(torch.from_numpy(rng.normal(size=(120, 400))))
    labels = torch.from_numpy(rng.permutation(np.repeat(np.arange(4), 30)))
    for how in ("logistic", "prototypes"):
        tried = try_frozen(how, features, labels, 4, draw_folds(labels.numpy(), 0))
        assert tried.accuracy < 0.45  # chance is 0.25; four standard errors are 0.16


def test_more_labels_are_expected_to_do_better_than_the_folds() -> None:
    tried = made("logistic", torch.arange(50) < 30)
    assert 0.6 == tried.accuracy < tried.expected < 0.65
    assert 0.06 < tried.error < 0.08  # √(0.6 · 0.4 / 50)


def test_five_labels_a_class_do_better_than_the_nearest_neighbour() -> None:
    """Noisy clusters that 1-NN gets three quarters right: of 24 draws the least was 0.077 ahead, the mean 0.138."""
    ahead = []
    for seed in range(6):
        features, labels = clusters(seed, 300, 64, 5, noise=2.0)
        rows = torch.cat([(labels == label).nonzero()[:5, 0] for label in range(5)])
        x, y = features[rows], labels[rows]
        weight, bias = _fitted(x, y)
        nearest = knn_predict(x, y, features, 1)
        ahead.append(float(((features @ weight.T + bias).argmax(1) == labels).double().mean()))
        ahead[-1] -= float((nearest == labels).double().mean())
    assert np.mean(ahead) > 0.05


def _fitted(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    from csml.evaluation.few_labels import fit_frozen

    tried = try_frozen("logistic", x, y, 5, draw_folds(y.numpy(), 0))
    assert tried.penalty is not None
    return fit_frozen("logistic", x, y, 5, (tried.penalty,))[0]


def test_an_accuracy_is_an_estimate_if_most_labels_were_held_out() -> None:
    """The only label of a class is never held out: of twelve labels of ten classes, four are."""
    few = CrossValidated("logistic", torch.zeros(1, 12, 10), torch.arange(12)[None] < 4, torch.zeros(12), kept=0.5)
    most = replace(few, held=torch.arange(12)[None] < 6)
    assert not few.covers_most and most.covers_most
