"""Faster R-CNN C4: proposals on stage 3, and stage 4 with an extra norm as the box head."""

from collections import OrderedDict
from typing import Any

from torch import Tensor, nn
from torchvision.models.resnet import ResNet
from torchvision.ops import RoIAlign

_SHARED = ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3")


class C4Backbone(nn.Module):
    """A ResNet up to stage 3, with the same module names: `(B, 3, H, W)` → `{"stage3": (B, C3, H/16, W/16)}`."""

    def __init__(self, net: ResNet) -> None:
        super().__init__()
        for name in _SHARED:
            self.add_module(name, getattr(net, name))

    def forward(self, images: Tensor) -> "OrderedDict[str, Tensor]":
        x = images
        for name in _SHARED:
            x = self.get_submodule(name)(x)
        return OrderedDict(stage3=x)


class C4Pool(nn.Module):
    """RoIAlign of the proposals on the map of stage 3: `(R, C3, side, side)`."""

    def __init__(self, stride: int, side: int) -> None:
        super().__init__()
        # Without `aligned`, features are shifted by half a cell of the map, which is 8 pixels of the image.
        self.align = RoIAlign((side, side), spatial_scale=1 / stride, sampling_ratio=-1, aligned=True)

    def forward(self, maps: dict[str, Tensor], boxes: list[Tensor], image_sizes: Any) -> Tensor:
        return self.align(maps["stage3"], boxes)


class C4Head(nn.Module):
    """Stage 4 on each proposal, the extra norm, and the mean over positions: `(R, C3, side, side)` → `(R, C4)`."""

    def __init__(self, net: ResNet, channels: int) -> None:
        super().__init__()
        self.layer4 = net.layer4
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.layer4(x)).mean(dim=(2, 3))
