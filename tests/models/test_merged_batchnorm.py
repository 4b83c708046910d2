"""BatchNorm in the convolutions before it: the same function, gradients, weights and names."""

import copy

import pytest
import timm
import torch
from torch import Tensor, nn

from csml.models import Encoder
from csml.models.backbones import FeatureNet
from csml.models.fixed_batchnorm import FixedBatchNorm, fix_batchnorm
from csml.models.merged_batchnorm import MergedConv2d, for_use, merge_batchnorm
from networks import trained

MERGED = {
    "nano": 12, "resnet18": 20, "resnet50": 53, "timm:test_resnet": None, "timm:test_efficientnet": None,
    "timm:tf_efficientnet_lite0": 49, "timm:regnety_002": None, "timm:resnext26ts": 31, "timm:test_vit": 0,
    "timm:test_convnext": 0,
}  # fmt: skip
"""Network → how many of its convolutions have a BatchNorm after them; None: more than half."""


def images(side: int = 64) -> Tensor:
    return torch.rand(3, 3, side, side, generator=torch.Generator().manual_seed(0))


def merged_in(net: nn.Module) -> list[MergedConv2d]:
    return [module for module in net.modules() if isinstance(module, MergedConv2d)]


@pytest.mark.parametrize("name", MERGED)
def test_for_use_it_is_the_same_function_at_every_stage(name: str) -> None:
    net = trained(name)
    state = copy.deepcopy(net.state_dict())
    used = for_use(net.train())
    count, convolutions = len(merged_in(used)), sum(isinstance(module, nn.Conv2d) for module in net.modules())
    assert count == MERGED[name] or (MERGED[name] is None and count > convolutions / 2)
    assert net.training and not merged_in(net), "the network itself was changed"
    assert all(torch.equal(value, state[key]) for key, value in net.state_dict().items())
    with torch.no_grad():
        for side in (64, 45):  # padding as in TensorFlow depends on the side
            expected, found = (FeatureNet(each.eval(), (1, 2, 3, 4))(images(side)) for each in (net, used))
            for stage, values in expected.items():
                torch.testing.assert_close(found[stage], values, atol=2e-4 * float(values.abs().max()), rtol=0)


@pytest.mark.parametrize("name", ["nano", "resnet50", "timm:tf_efficientnet_lite0"])
def test_in_training_gradients_and_names_are_those_of_both_apart(name: str) -> None:
    apart, merged = trained(name).double(), trained(name).double()
    for net in (apart, merged):
        fix_batchnorm(net)
    merge_batchnorm(merged)
    assert merged_in(merged) and list(merged.state_dict()) == list(apart.state_dict())
    for net in (apart, merged):
        net.train()(images().double())[:, :5].pow(2).sum().backward()
    for (key, one), (_, other) in zip(apart.named_parameters(), merged.named_parameters(), strict=True):
        assert one.grad is not None and other.grad is not None, key
        torch.testing.assert_close(other.grad, one.grad, atol=1e-9 * float(one.grad.abs().max()) + 1e-15, rtol=1e-6)


def test_new_weights_are_used_at_once_and_a_copy_has_its_own() -> None:
    encoder = Encoder(trained("nano"), (4,), dim=8, hidden=16, projection=False, fixed_batchnorm=True)
    other = copy.deepcopy(encoder)
    assert merged_in(encoder.backbone)
    with torch.no_grad():
        before = encoder.backbone(images())
        for module in encoder.backbone.modules():
            if isinstance(module, FixedBatchNorm):
                module.weight.mul_(1.5)
        assert not torch.allclose(encoder.backbone(images()), before)
        torch.testing.assert_close(other.backbone(images()), before, atol=0, rtol=0)
        other.load_state_dict(encoder.state_dict())
        torch.testing.assert_close(other.backbone(images()), encoder.backbone(images()), atol=0, rtol=0)


class Forked(nn.Module):
    """timm's ResNet, but someone else takes the output of the first convolution too."""

    def __init__(self) -> None:
        super().__init__()
        self.net = timm.create_model("test_resnet", num_classes=0)
        self.feature_info = self.net.feature_info

    def forward_intermediates(self, images: Tensor, **more: object) -> tuple[Tensor, list[Tensor]]:
        last, maps = self.net.forward_intermediates(images, **more)
        return last, [self.net.conv1[0](images), *maps[1:]]

    def forward_head(self, last: Tensor, pre_logits: bool) -> Tensor:
        return self.net.forward_head(last, pre_logits=pre_logits)


def test_a_network_that_would_compute_something_else_is_left_as_it_is() -> None:
    net = Forked().eval()
    nn.init.uniform_(net.net.conv1[1].weight, 2, 3)
    fix_batchnorm(net)
    before = FeatureNet(net, (1, 4))(images())
    merge_batchnorm(net)
    assert not merged_in(net)
    after = FeatureNet(net, (1, 4))(images())
    assert all(torch.equal(after[stage], before[stage]) for stage in before)
