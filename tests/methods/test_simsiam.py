"""SimSiam's own parts: the stop-gradient, narrow predictors, no second encoder."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_byol import DIM, byol
from test_momentum_contrast import B, csml_views, generator

from csml.config import SimSiamConfig
from csml.errors import CsmlError
from csml.methods import framework_class
from csml.methods.framework import Framework
from csml.methods.simsiam import SimSiam
from csml.models import Encoder, build_backbone


def simsiam(**settings: Any) -> SimSiam:
    torch.manual_seed(0)
    encoder = Encoder(build_backbone("tiny"), (3, 4), DIM, 16, norm=True)
    return SimSiam(encoder, SimSiamConfig(**settings)).double()


def test_there_is_one_encoder_and_it_has_both_roles() -> None:
    method = simsiam()
    assert {name.split(".")[0] for name in method.state_dict()} == {"query_encoder", "predictors", "recent"}
    assert method.encoder("key") is method.encoder("query") is method.query_encoder
    assert method.encoders() == [method.query_encoder]


def test_keys_have_no_gradient() -> None:
    views = csml_views()
    for image in (*views.keys.values(), *views.queries.values()):
        image.requires_grad_()
    simsiam()(views, generator()).loss.backward()
    assert all(image.grad is None for image in views.keys.values())
    assert all(image.grad is not None and image.grad.abs().sum() > 0 for image in views.queries.values())


def test_views_that_are_both_query_and_key_are_encoded_once_and_give_a_stopped_key() -> None:
    views, method, seen = csml_views(), simsiam(), []
    both = {"a": views.keys["a"], "p": views.keys["p"]}
    shared = views._replace(
        queries={**views.queries, "a_swapped": both["a"], "p_swapped": both["p"]},
        groups={**views.groups, "a_swapped": 1, "p_swapped": 1},
        weights={**views.weights, "a_swapped": torch.tensor([0.0, 1.0]), "p_swapped": torch.tensor([1.0, 0.0])},
    )
    copied = shared._replace(keys={name: images.clone() for name, images in both.items()})
    method.query_encoder.register_forward_hook(lambda *_: seen.append(1))
    results = [method(each, generator()) for each in (shared, copied)]
    assert len(seen) == 5 + 7
    torch.testing.assert_close(results[0].loss, results[1].loss)
    gradients = [torch.autograd.grad(result.loss, list(method.parameters())) for result in results]
    for one, two in zip(*gradients, strict=True):
        torch.testing.assert_close(one, two)


def test_every_level_has_its_own_predictor_with_a_bottleneck() -> None:
    method = simsiam()
    assert set(method.predictors) == {"3", "4"}
    widths = [layer.out_features for layer in (method.predictors["4"][0], method.predictors["4"][-1])]
    assert widths == [16 // 4, DIM]
    assert simsiam(predictor_hidden=5).predictors["3"][0].out_features == 5
    assert any(isinstance(layer, torch.nn.BatchNorm1d) for layer in method.predictors["3"])


@pytest.mark.parametrize("made", [byol, simsiam])
def test_the_statistics_see_the_keys_of_the_last_steps(made: Callable[[], Framework]) -> None:
    method = made()
    assert len(method.recent_keys()[4]) == 0
    for _ in range(2):
        result = method(csml_views(), generator())
        method.after_backward(result)
    assert method.recent_keys()[4].shape == (2 * B, DIM)
    torch.testing.assert_close(method.recent_keys()[4][B:], result.fresh[0][0][4])


def test_frameworks_are_found_by_name() -> None:
    assert framework_class("simsiam") is SimSiam
    for name in ("queue", "nothing"):
        with pytest.raises(CsmlError, match=f"framework: there is no '{name}'"):
            framework_class(name)
