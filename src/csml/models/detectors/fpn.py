"""The feature pyramid: all four stages of a ResNet with the same width, and a fifth level made from the last."""

from collections import OrderedDict

from torch import Tensor, nn
from torchvision.models.resnet import ResNet
from torchvision.ops.feature_pyramid_network import FeaturePyramidNetwork, LastLevelMaxPool

from csml.config import STAGES
from csml.models.backbones import stage_channels, stage_maps

LEVELS: tuple[str, ...] = tuple(f"stage{stage}" for stage in STAGES)
"""Names of the maps from which boxes are cut; proposals also come from the fifth, "pool"."""


class PyramidBackbone(nn.Module):
    """`(B, 3, H, W)` → `{"stage1": (B, width, H/4, W/4), …, "stage4": (B, width, H/32, W/32), "pool": …}`."""

    def __init__(self, net: ResNet, width: int) -> None:
        super().__init__()
        self.net = net
        channels = stage_channels(net)
        self.fpn = FeaturePyramidNetwork(
            [channels[stage] for stage in STAGES], width, extra_blocks=LastLevelMaxPool(), norm_layer=nn.BatchNorm2d
        )

    def forward(self, images: Tensor) -> "OrderedDict[str, Tensor]":
        maps = stage_maps(self.net, images)
        pyramid: OrderedDict[str, Tensor] = self.fpn(OrderedDict((f"stage{s}", maps[s]) for s in STAGES))
        return pyramid
