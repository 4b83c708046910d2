"""Which layers are tuned on a few labels, and when classifiers are tested."""

import pytest
import torch

from csml.models.backbones import build_backbone
from csml.training.classification import tests_after as is_tested
from csml.training.tuning import apply_temperature, last_stage_parameters, tunable, with_linear

LINEAR = (torch.randn(3, 128, dtype=torch.float64), torch.zeros(3, dtype=torch.float64))


def test_each_way_tunes_its_layers_and_the_linear_layer() -> None:
    net = build_backbone("nano")
    norms = {name for name, _ in net.named_parameters() if "bn" in name or "downsample.1" in name}
    wanted = {
        "norms": norms,
        "last-stage": {name for name, _ in net.named_parameters() if name.startswith("layer4.")},
        "all": {name for name, _ in net.named_parameters()},
    }
    for how, names in wanted.items():
        classifier = tunable(net, LINEAR, how)
        assert {name for name, p in net.named_parameters() if p.requires_grad} == names, how
        assert all(p.requires_grad for p in classifier.fc.parameters())
        assert not any(module.training for module in classifier.modules())


def test_the_last_stage_of_a_resnet_is_layer4() -> None:
    net = build_backbone("resnet18")
    assert {id(p) for p in last_stage_parameters(net)} == {id(p) for p in net.layer4.parameters()}


def test_a_temperature_inside_the_linear_layer_divides_the_scores() -> None:
    classifier = with_linear(build_backbone("nano"), LINEAR).eval()
    images = torch.randn(4, 3, 32, 32)
    before = classifier(images)
    apply_temperature(classifier, 2.5)
    torch.testing.assert_close(classifier(images), before / 2.5)


def test_scores_do_not_depend_on_the_length_of_a_feature() -> None:
    classifier = with_linear(build_backbone("nano"), LINEAR).eval()
    features = torch.rand(4, 128)
    torch.testing.assert_close(classifier.scores(features), classifier.scores(7 * features))


@pytest.mark.parametrize(
    ("epochs", "every", "tested"),
    [
        (3, None, [1, 2, 3]),
        (40, None, [4, 8, 12, 16, 20, 24, 28, 32, 36, 40]),
        (90, 40, [40, 80, 90]),
        (5, 0, [5]),
    ],
)
def test_a_run_is_tested_as_often_as_asked_and_after_its_last_epoch(
    epochs: int, every: int | None, tested: list[int]
) -> None:
    assert [epoch for epoch in range(1, epochs + 1) if is_tested(epoch, epochs, every)] == tested
