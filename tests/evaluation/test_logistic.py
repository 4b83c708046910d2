"""Logistic regression against scikit-learn's."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from csml.evaluation.few_labels import fit_frozen
from csml.evaluation.logistic import fit_logistic


def clusters(
    seed: int, rows: int, channels: int, classes: int, noise: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Unit features around a direction for each class, and labels; every class has one at least."""
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(classes), rng.integers(0, classes, rows - classes)])
    features = 2 + rng.normal(size=(classes, channels))[labels] + noise * rng.normal(size=(rows, channels))
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    return torch.from_numpy(unit), torch.from_numpy(labels)


@pytest.mark.parametrize(("rows", "channels"), [(12, 40), (60, 7)])  # fewer labels than channels, and more
@pytest.mark.parametrize("penalty", [1e-1, 1e-3])
def test_it_is_that_of_scikit_learn(rows: int, channels: int, penalty: float) -> None:
    from sklearn.linear_model import LogisticRegression  # three seconds, which no other worker needs to wait

    features, labels = clusters(0, rows, channels, 4)
    ((weight, bias),) = fit_logistic(features, labels, 4, [penalty], tolerance=1e-9)
    oracle = LogisticRegression(C=1 / (penalty * rows), tol=1e-12, max_iter=10_000)
    oracle.fit(features.numpy(), labels.numpy())
    np.testing.assert_allclose(weight, oracle.coef_, atol=1e-4)
    # A number added to all biases changes no probability.
    np.testing.assert_allclose(bias - bias.mean(), oracle.intercept_ - oracle.intercept_.mean(), atol=1e-4)
    shares = (features @ weight.T + bias).softmax(1)
    np.testing.assert_allclose(shares, oracle.predict_proba(features.numpy()), atol=1e-5)


def test_a_fit_that_starts_from_another_is_the_same() -> None:
    features, labels = clusters(1, 30, 50, 3)
    path = fit_logistic(features, labels, 3, [1e-1, 1e-2, 1e-3], tolerance=1e-9)
    for penalty, (weight, _) in zip([1e-1, 1e-2, 1e-3], path, strict=True):
        ((alone, _),) = fit_logistic(features, labels, 3, [penalty], tolerance=1e-9)
        np.testing.assert_allclose(weight, alone, atol=1e-5)


def test_a_class_without_labels_is_not_predicted() -> None:
    features, labels = clusters(2, 20, 10, 3)
    for how in ("logistic", "prototypes"):
        weight, bias = fit_frozen(how, features, labels, 5)[-1]
        assert (features @ weight.T + bias).argmax(1).max() < 3


@given(seed=st.integers(0, 1000))
def test_prototypes_are_the_nearest_class_means(seed: int) -> None:
    features, labels = clusters(seed, 24, 6, 4)
    ((weight, bias),) = fit_frozen("prototypes", features, labels, 4)
    means = np.stack([features[labels == label].numpy().mean(0) for label in range(4)])
    distances = np.linalg.norm(features.numpy()[:, None] - means / np.linalg.norm(means, axis=1, keepdims=True), axis=2)
    assert np.array_equal((features @ weight.T + bias).argmax(1), distances.argmin(1))
