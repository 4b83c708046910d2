"""The feature pyramid: all four stages of a backbone with the same width, and a fifth level made from the last."""

from collections import OrderedDict

import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.ops.feature_pyramid_network import FeaturePyramidNetwork, LastLevelMaxPool

from csml.config import STAGES
from csml.models.backbones import Backbone, stage_channels, stage_maps, stage_strides

LEVELS: tuple[str, ...] = tuple(f"stage{stage}" for stage in STAGES)
"""Names of the maps that RoIAlign uses; proposals also come from the fifth, "pool"."""


class PyramidBackbone(nn.Module):
    """`(B, 3, H, W)` → `{"stage1": (B, width, H/4, W/4), …, "stage4": (B, width, H/32, W/32), "pool": …}`."""

    def __init__(self, net: Backbone, width: int) -> None:
        super().__init__()
        self.net = net
        channels, strides = stage_channels(net), stage_strides(net)
        self.scales = _scales(strides)
        self.fpn = FeaturePyramidNetwork(
            [channels[stage] for stage in STAGES], width, extra_blocks=LastLevelMaxPool(), norm_layer=nn.BatchNorm2d
        )

    def forward(self, images: Tensor) -> "OrderedDict[str, Tensor]":
        maps = stage_maps(self.net, images)
        for stage, scale in self.scales.items():
            larger = F.interpolate(maps[stage], scale_factor=scale, mode="bilinear", antialias=scale < 1)
            height, width = (side // 2 ** (stage + 1) for side in images.shape[2:])
            maps[stage] = larger[:, :, :height, :width]  # patches of 14 pixels extend beyond the image
        pyramid: OrderedDict[str, Tensor] = self.fpn(OrderedDict((f"stage{s}", maps[s]) for s in STAGES))
        return pyramid


def pyramid_strides(net: Backbone) -> list[int]:
    """Strides of the pyramid levels that RoIAlign uses, in pixels of the image."""
    strides = stage_strides(net)
    scales = _scales(strides)
    return [int(strides[stage] / scales.get(stage, 1.0)) for stage in STAGES]


def _scales(strides: dict[int, int]) -> dict[int, float]:
    """Scale factors for the maps of a network with a single resolution, such as a ViT, to strides of 4, 8, 16, 32.

    Empty for networks whose stages already halve the resolution.
    """
    if len(set(strides.values())) > 1:
        return {}
    return {stage: strides[stage] / 2 ** (stage + 1) for stage in STAGES}
