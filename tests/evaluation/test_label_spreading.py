"""Labels spread over neighbours, against scikit-learn's label spreading, and on clusters."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.semi_supervised import LabelSpreading
from test_logistic import clusters

from csml.evaluation.few_labels import try_frozen
from csml.evaluation.folds import draw_folds
from csml.evaluation.label_spreading import NEIGHBORS, fit_spread, link_neighbors, spread_labels, try_spread
from csml.evaluation.logistic import fit_logistic

NOBODY = torch.empty(0, dtype=torch.long)


def neighbor_kernel(features: np.ndarray, _: np.ndarray) -> np.ndarray:
    """Strengths of the links `(N, N)`, from all cosines."""
    similarity = features @ features.T
    np.fill_diagonal(similarity, -np.inf)
    strengths = np.zeros_like(similarity)
    for row, cosines in enumerate(similarity):
        nearest = np.argsort(-cosines)[:NEIGHBORS]
        strengths[row, nearest] = np.exp((cosines[nearest] - 1) / 0.05)
    return strengths + strengths.T


def test_shares_are_those_of_scikit_learn() -> None:
    features, labels = clusters(0, rows=80, channels=6, classes=4)
    order = torch.argsort(labels, stable=True)
    rows = torch.cat([order[labels[order] == label][:3] for label in range(4)])  # as many labels of every class
    known = np.full(len(labels), -1)
    known[rows] = labels[rows]
    oracle = LabelSpreading(kernel=neighbor_kernel, alpha=0.9, max_iter=30, tol=0.0)
    with pytest.warns(match="max_iter"):
        oracle.fit(features.numpy(), known)
    shares = spread_labels(link_neighbors(features, features[NOBODY]), rows, labels[rows], 4)
    others = np.setdiff1d(np.arange(len(labels)), rows)
    np.testing.assert_allclose(shares[others], oracle.label_distributions_[others], atol=1e-5)  # float32 cosines
    assert torch.equal(shares[rows], F.one_hot(labels[rows], 4).double())


def test_an_image_that_is_left_out_neither_gets_nor_passes_on() -> None:
    features, labels = clusters(1, rows=60, channels=6, classes=3)
    rows, out = torch.arange(6), torch.arange(6, 20)
    shares = spread_labels(link_neighbors(features[:20], features[20:]), rows, labels[rows], 3, out)
    assert (shares[out] == 0).all()
    kept = np.setdiff1d(np.arange(60), out)
    links = neighbor_kernel(features.numpy(), features.numpy())[np.ix_(kept, kept)]
    root = links.sum(1) ** -0.5
    start = np.zeros((len(kept), 3))
    start[rows, labels[rows]] = 1 / np.bincount(labels[rows])[labels[rows]]
    spread = start
    for _ in range(30):
        spread = 0.9 * (root[:, None] * links * root) @ spread + 0.1 * start
    expected = spread / spread.sum(1, keepdims=True)
    np.testing.assert_allclose(shares[kept[6:]], expected[6:], atol=1e-5)


def test_classes_start_with_equal_weight_however_many_labels_they_have() -> None:
    """Two clusters as far apart as everything else; one has one label, the other nine."""
    rng = np.random.default_rng(0)
    ends = np.eye(8)[[0, 1]].repeat(40, axis=0) + 0.3 * rng.normal(size=(80, 8))
    features, truth = F.normalize(torch.from_numpy(ends)), torch.arange(2).repeat_interleave(40)
    rows = torch.cat([torch.tensor([0]), torch.arange(40, 49)])
    shares = spread_labels(link_neighbors(features, features[NOBODY]), rows, truth[rows], 2)
    assert (shares.argmax(1) == truth).double().mean() > 0.95


def test_neighbours_tell_more_than_one_label_a_class() -> None:
    """Two half circles in each other's way: no single label shows their shape, but their points lie in rows."""
    angles = torch.linspace(0, torch.pi, 300, dtype=torch.float64)
    first = torch.stack([angles.cos(), angles.sin()], 1)
    second = torch.stack([1 - angles.cos(), 0.5 - angles.sin()], 1)
    points = torch.cat([first, second])  # (600, 2)
    centres = points[::20]
    features = F.normalize((-8 * (points[:, None] - centres).square().sum(2)).exp())  # (600, 30)
    truth = torch.arange(2).repeat_interleave(300)
    labeled = torch.tensor([150, 450])
    order = torch.cat([labeled, torch.tensor([i for i in range(600) if i not in (150, 450)])])
    graph = link_neighbors(features[labeled], features[order[2:]])
    weight, bias = fit_spread(graph, torch.arange(2), torch.tensor([0, 1]), 2)
    spread = ((features @ weight.T + bias).argmax(1) == truth).double().mean()
    ((weight, bias),) = fit_logistic(features[labeled], torch.tensor([0, 1]), 2, [1e-3])
    alone = ((features @ weight.T + bias).argmax(1) == truth).double().mean()
    assert spread > alone + 0.05


def test_scores_of_cross_validation_are_out_of_fold() -> None:
    """Random labels cannot be predicted, not even by an image's own target."""
    rng = np.random.default_rng(0)
    features = F.normalize(torch.from_numpy(rng.normal(size=(320, 100))))
    labels = torch.from_numpy(rng.permutation(np.repeat(np.arange(4), 30)))
    graph = link_neighbors(features[:120], features[120:])
    assert try_spread(graph, labels, 4, draw_folds(labels.numpy(), 0)).accuracy < 0.45  # chance is 0.25


def test_it_is_compared_on_the_same_folds_as_the_others() -> None:
    features, labels = clusters(2, rows=200, channels=12, classes=4)
    folds = draw_folds(labels[:40].numpy(), 0)
    tried = try_spread(link_neighbors(features[:40], features[40:]), labels[:40], 4, folds)
    other = try_frozen("logistic", features[:40], labels[:40], 4, folds)
    assert torch.equal(tried.held, other.held) and tried.kept == other.kept and tried.how == "spread"
    assert tried.accuracy > 0.5  # chance is 0.25


@pytest.mark.parametrize("others", [0, 1, 5])
def test_a_handful_of_images_is_enough(others: int) -> None:
    features, labels = clusters(3, rows=3 + others, channels=5, classes=3)
    weight, bias = fit_spread(link_neighbors(features[:3], features[3:]), torch.arange(3), labels[:3], 3)
    assert ((features[:3] @ weight.T + bias).argmax(1) == labels[:3]).all()
