"""Fixed BatchNorm: statistics stay in every mode, nobody sees the others of a batch, and weights keep their names."""

import copy

import pytest
import torch
from torch import Tensor, nn

from csml.distributed.world import World
from csml.models import Encoder
from csml.models.fixed_batchnorm import FixedBatchNorm
from csml.models.split_batchnorm import SplitBatchNorm2d, split_batchnorm
from csml.models.sync_batchnorm import synchronised
from networks import trained

NETWORKS = ["nano", "resnet18", "timm:test_resnet", "timm:test_efficientnet", "timm:regnety_002"]


def fixed(net: nn.Module) -> Encoder:
    return Encoder(net, (4,), dim=8, hidden=16, projection=False, fixed_batchnorm=True)


def images(batch: int) -> Tensor:
    return torch.rand(batch, 3, 64, 64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", NETWORKS)
def test_in_training_the_network_computes_what_it_computes_in_eval_mode(name: str) -> None:
    net = trained(name)
    before = copy.deepcopy(net.state_dict())
    with torch.no_grad():
        expected = net.eval()(images(3))
    encoder = fixed(net)  # as it is built, nobody calls train()
    encoder.backbone.train()
    torch.testing.assert_close(encoder.backbone(images(3)), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(encoder(images(3))[4][:1], encoder(images(3)[:1])[4], atol=1e-5, rtol=1e-5)
    after = encoder.backbone.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[key], before[key]) for key in before)


def test_scales_and_shifts_learn_unless_they_are_frozen() -> None:
    net = trained("nano")
    net.layer1.requires_grad_(False)
    encoder = fixed(net)
    encoder(images(3))[4][:, 0].sum().backward()
    learns = {name for name, parameter in encoder.backbone.named_parameters() if parameter.grad is not None}
    assert {"bn1.weight", "bn1.bias", "layer4.0.bn2.weight"} <= learns
    assert not any(name.startswith("layer1.") for name in learns)


def test_nothing_splits_or_synchronises_it() -> None:
    net = fixed(trained("timm:test_efficientnet")).backbone
    count = sum(isinstance(module, FixedBatchNorm) for module in net.modules())
    split_batchnorm(net, 4)
    synchronised(net, World(0, 2), torch.device("cpu"))
    assert count > 0
    assert sum(isinstance(module, FixedBatchNorm) for module in net.modules()) == count
    assert not any(isinstance(module, SplitBatchNorm2d) for module in net.modules())
