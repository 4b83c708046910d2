"""Networks for another number of channels."""

from collections.abc import Callable

import pytest
import timm
import torch

from csml.models.backbones import build_backbone
from csml.models.first_convolution import with_channels

NETWORKS: dict[str, Callable[[], torch.nn.Module]] = {
    "nano": lambda: build_backbone("nano"),
    "resnet18": lambda: build_backbone("resnet18", small_images=True),
    "efficientnet": lambda: timm.create_model("tf_efficientnet_lite0", num_classes=0),
    "vit": lambda: timm.create_model("vit_tiny_patch16_224", num_classes=0, img_size=64),
}


@pytest.mark.parametrize("channels", [1, 2, 5])
@pytest.mark.parametrize("name", NETWORKS)
def test_equal_channels_give_the_output_of_a_grey_image(name: str, channels: int) -> None:
    torch.manual_seed(0)
    net = NETWORKS[name]().eval()
    grey = torch.randn(2, 1, 64, 64)
    with torch.no_grad():
        before = net(grey.expand(-1, 3, -1, -1))
        after = with_channels(net, channels)(grey.expand(-1, channels, -1, -1))
    torch.testing.assert_close(after, before, rtol=1e-3, atol=1e-4)


def test_three_channels_change_nothing() -> None:
    net = build_backbone("nano")
    first = net.conv1
    assert with_channels(net, 3).conv1 is first
