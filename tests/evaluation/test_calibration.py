"""Temperature and calibration error against what is known."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from csml.evaluation.calibration import calibration_error, fit_temperature, temperature_for


@pytest.mark.parametrize("truth", [0.2, 1.0, 5.0])
def test_a_known_temperature_is_found(truth: float) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = truth * 2 * torch.randn(20_000, 5, generator=generator, dtype=torch.float64)
    labels = torch.multinomial((scores / truth).softmax(1), 1, generator=generator)[:, 0]
    assert fit_temperature(scores, labels) == pytest.approx(truth, rel=0.05)


@given(seed=st.integers(0, 1000), smoothing=st.floats(0.001, 0.2))
def test_no_other_temperature_has_a_lower_loss(seed: int, smoothing: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(12, 3, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 3, (12,), generator=generator)
    found = fit_temperature(scores, labels, smoothing)

    def loss(temperature: float) -> float:
        logs = torch.log_softmax(scores / temperature, 1).numpy()
        target = (1 - smoothing) * np.eye(3)[labels.numpy()] + smoothing / 3
        return float(-(target * logs).sum(1).mean())

    # Where the scores say less than nothing, the largest temperature is found.
    others = [found * factor for factor in (0.5, 0.9, 1.1, 2) if found * factor < 1e3]
    assert all(loss(found) <= loss(other) + 1e-9 for other in others)


def test_predictions_that_are_all_right_do_not_become_certain() -> None:
    scores = torch.eye(4, dtype=torch.float64).repeat(2, 1)
    found = fit_temperature(scores, torch.arange(4).repeat(2))
    assert 0.9 < float((scores / found).softmax(1).amax(1).mean()) < 0.95  # 9 of 10, and a quarter of the rest


def test_a_mean_probability_is_reached() -> None:
    scores = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    found = temperature_for(scores, 0.7)
    assert float((scores.double() / found).softmax(1).amax(1).mean()) == pytest.approx(0.7, abs=1e-6)


@given(seed=st.integers(0, 1000))
def test_the_calibration_error_is_the_formula(seed: int) -> None:
    rng = np.random.default_rng(seed)
    probabilities, right = rng.uniform(0.05, 1, 100), rng.random(100) < 0.6
    expected = 0.0
    for low in np.arange(15) / 15:
        inside = (probabilities > low) & (probabilities <= low + 1 / 15)
        if inside.any():
            expected += inside.mean() * abs(right[inside].mean() - probabilities[inside].mean())
    found = calibration_error(torch.from_numpy(probabilities), torch.from_numpy(right))
    assert found == pytest.approx(expected, abs=1e-12)
