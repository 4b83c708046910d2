"""BYOL's own parts: the momentum that rises to 1, predictors, no negatives."""

import math

import pytest
import torch
from test_momentum_contrast import B, csml_views, generator

from csml.config import ByolConfig
from csml.losses import predictive
from csml.methods.byol import Byol
from csml.models import Encoder, build_backbone

DIM = 8


def byol(**settings: object) -> Byol:
    torch.manual_seed(0)
    encoder = Encoder(build_backbone("tiny"), (3, 4), DIM, 16, norm=True)
    return Byol(encoder, ByolConfig(**settings)).double()  # type: ignore[arg-type]


def test_momentum_rises_to_one_as_half_a_cosine() -> None:
    method = byol(momentum=0.99)
    for progress in (0.0, 0.25, 0.5, 1.0):
        method.progress = progress
        assert method.momentum() == pytest.approx(1 - 0.01 * (math.cos(math.pi * progress) + 1) / 2)
    assert method.momentum() == 1.0


def test_keys_get_no_gradient_and_follow_by_momentum() -> None:
    method = byol(momentum=0.9)
    with torch.no_grad():
        for parameter in method.query_encoder.parameters():
            parameter.add_(torch.randn_like(parameter))
    before = [p.clone() for p in method.key_encoder.parameters()]
    method(csml_views(), generator()).loss.backward()
    for old, key, query in zip(before, method.key_encoder.parameters(), method.query_encoder.parameters(), strict=True):
        assert key.grad is None
        torch.testing.assert_close(key.detach(), 0.9 * old + 0.1 * query.detach())
    assert all(p.grad is not None for p in method.predictors.parameters())


def test_every_level_has_its_own_predictor() -> None:
    method = byol(predictor_hidden=5)
    assert set(method.predictors) == {"3", "4"}
    assert [layer.out_features for layer in (method.predictors["4"][0], method.predictors["4"][-1])] == [5, DIM]


def test_the_loss_is_two_minus_two_cosines_whatever_the_length_of_a_prediction() -> None:
    prediction = torch.randn(B, DIM, dtype=torch.float64)
    positives = torch.nn.functional.normalize(torch.randn(2, B, DIM, dtype=torch.float64), dim=2)
    weights = torch.tensor([0.3, 0.7], dtype=torch.float64)
    expected = sum(
        w * (2 - 2 * torch.nn.functional.cosine_similarity(prediction, p))
        for w, p in zip(weights, positives, strict=True)
    )
    torch.testing.assert_close(predictive(prediction, positives, weights).loss, expected)
    torch.testing.assert_close(predictive(7 * prediction, positives, weights).loss, expected)
    own = predictive(positives[0], positives, torch.tensor([1.0, 0.0], dtype=torch.float64))
    torch.testing.assert_close(own.loss, torch.zeros(B, dtype=torch.float64), atol=1e-12, rtol=0)
