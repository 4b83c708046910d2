"""Settings of networks, and the names of the backbones."""

from dataclasses import dataclass
from typing import Literal

from csml.config.fields import Settings, bounded, choice, require, subset

SMALL = ("small", "tiny", "nano")
"""Small ResNets of our own, for small images."""
TORCHVISION = (
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "resnet152",
    "resnext50_32x4d",
    "resnext101_32x8d",
    "resnext101_64x4d",
    "wide_resnet50_2",
    "wide_resnet101_2",
)
BACKBONES: tuple[str, ...] = (*SMALL, *TORCHVISION)
TIMM = "timm:"
"""Prefix of the name of a network of timm."""

STAGES: tuple[int, ...] = (1, 2, 3, 4)
"""Stages that every backbone has."""


@dataclass(frozen=True)
class BackboneConfig(Settings):
    """The network."""

    backbone: str = choice("resnet50", BACKBONES, or_prefix=TIMM)
    """A torchvision ResNet by name; timm:NAME for a ResNet, RegNet, EfficientNet, MobileNet, ConvNeXt, Swin or ViT of
    timm, such as timm:convnext_tiny; or `small`, `tiny` or `nano`: four stages of one block each, for small images on
    a CPU."""
    small_images: bool = False
    """Use a 3×3 first convolution and no max-pool, for images of about 32 pixels."""


@dataclass(frozen=True)
class ModelConfig(BackboneConfig):
    """The network and its heads."""

    stages: tuple[int, ...] = subset((2, 3, 4), STAGES)
    """Levels that have a loss, by stage of the backbone. [4] drops the companion heads."""
    dim: int = bounded(128, low=2, limit=65_536)
    """Number of dimensions of an embedding."""
    hidden: int | None = bounded(None, low=1, limit=65_536)
    """Width of the MLP heads; by default the number of channels of the stage."""
    narrowing: Literal[1, 2, 4] | None = None
    """Bottleneck of a companion head: how many times narrower it is than its stage. By default as in the network's own
    blocks: 4 in a ResNet-50, where levels 2 and 3 then add a tenth of the cost, and 1 in networks of BasicBlocks."""

    def check(self) -> None:
        require(4 in self.stages, "stages", f"4, the last stage, must be among them, not only {list(self.stages)}")
