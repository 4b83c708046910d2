"""Backbones by name: torchvision's ResNets, small ResNets of our own, and timm's networks, all with four stages.

This file is the only interface of csml to a network: its stage maps, its feature, and the images it expects.
"""

import contextlib
import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torchvision
from torch import Tensor, nn
from torchvision.models.resnet import Bottleneck, ResNet

from csml.config import BACKBONES, SMALL, STAGES, TIMM, TORCHVISION
from csml.errors import CsmlError
from csml.models.first_convolution import with_channels
from csml.models.onednn_workaround import guard_point_maps
from csml.models.raw_pixels import RawPixels
from csml.models.small_resnet import WIDTHS, SmallResNet
from csml.models.timm_networks import build_timm, timm_normalization, timm_outputs, timm_strides
from csml.pixels import IMAGENET, Normalization, normalization_of

Backbone = nn.Module
"""A network made by `build_backbone`. Called with images `(B, 3, H, W)`, it returns its feature `(B, F)`."""

_BLANK_SIDE = 64


class StageOutputs(NamedTuple):
    """The outputs of a backbone for a batch of B images."""

    maps: dict[int, Tensor]
    """`{1: (B, C1, H1, W1), …, 4: (B, C4, H4, W4)}`: the feature map of each stage"""
    feature: Tensor
    """`(B, F)`: the network's own feature. A ResNet's is the mean of its last map; others have more layers after it."""


def build_backbone(name: str, small_images: bool = False, channels: int = 3) -> Backbone:
    """Build a randomly initialised network without a classifier: images `(B, 3, H, W)` → features `(B, F)`.

    Args:
        name: one of `BACKBONES`, or `timm:NAME`.
        small_images: use a 3×3 first convolution with stride 1 and no max-pool, for images of about 32 pixels.
        channels: C of the images.
    """
    if name.startswith(TIMM):
        if small_images:
            raise CsmlError(f"model.small_images: only ResNets have it, not {name}; leave it out")
        return with_channels(build_timm(name.removeprefix(TIMM)), channels)
    if name in SMALL:
        net: ResNet = SmallResNet(WIDTHS[name])
    elif name in TORCHVISION:
        net = getattr(torchvision.models, name)(weights=None)
    else:
        raise ValueError(f"backbone {name!r} is unknown; choose one of {', '.join(BACKBONES)}, or {TIMM}NAME")
    if small_images:
        width = net.conv1.out_channels
        net.conv1 = nn.Conv2d(3, width, 3, stride=1, padding=1, bias=False)
        nn.init.kaiming_normal_(net.conv1.weight, mode="fan_out", nonlinearity="relu")
        net.maxpool = nn.Identity()
    net.fc = nn.Identity()
    guard_point_maps(net)
    return with_channels(net, channels)


def image_channels(net: Backbone) -> int:
    """Number of channels C of the images that the network takes."""
    if isinstance(net, RawPixels):
        return net.channels
    return next((module.in_channels for module in net.modules() if isinstance(module, nn.Conv2d)), 3)


def stage_outputs(net: Backbone, images: Tensor) -> StageOutputs:
    """Run the network: the map of each stage, and its feature."""
    if isinstance(net, RawPixels):
        return StageOutputs(dict.fromkeys(STAGES, net.picture(images)), net(images))
    if not isinstance(net, ResNet):
        maps, feature = timm_outputs(net, images)
        return StageOutputs(dict(zip(STAGES, maps, strict=True)), feature)
    x = net.maxpool(net.relu(net.bn1(net.conv1(images))))
    by_stage = {}
    for stage in STAGES:
        x = getattr(net, f"layer{stage}")(x)
        by_stage[stage] = x
    return StageOutputs(by_stage, x.mean(dim=(2, 3)))


def stage_maps(net: Backbone, images: Tensor) -> dict[int, Tensor]:
    """The output of each stage: `{1: (B, C1, H1, W1), …, 4: (B, C4, H4, W4)}`."""
    return stage_outputs(net, images).maps


def stage_channels(net: Backbone) -> dict[int, int]:
    """Channels of each stage's feature map."""
    return {stage: fmap.shape[1] for stage, fmap in _outputs_of_blank_image(net).maps.items()}


def stage_strides(net: Backbone) -> dict[int, int]:
    """Stride of each stage's feature map, in pixels of the image."""
    if not isinstance(net, ResNet):
        return timm_strides(net)
    return {stage: _BLANK_SIDE // fmap.shape[3] for stage, fmap in _outputs_of_blank_image(net).maps.items()}


def feature_channels(net: Backbone) -> dict[int, int]:
    """Dimensions of the pooled features of each stage, as `FeatureNet` returns them."""
    outputs = _outputs_of_blank_image(net)
    return {stage: pooled.shape[1] for stage, pooled in _pooled(outputs, STAGES).items()}


def normalization(net: Backbone) -> Normalization:
    """Mean and standard deviation for normalising the network's images."""
    if isinstance(net, RawPixels):
        return net.normalization
    channels = image_channels(net)
    if isinstance(net, ResNet) or channels != len(IMAGENET.mean):
        return normalization_of(channels)
    return timm_normalization(net)


def block_narrowing(net: Backbone) -> int:
    """Bottleneck factor of the network's own blocks: output width over inner width; 4 if not a ResNet."""
    return int(net.layer4[-1].expansion) if isinstance(net, ResNet) else Bottleneck.expansion


def has_depthwise(net: Backbone) -> bool:
    """Whether the network has depthwise convolutions: on CPUs their gradient takes twice as long in bf16."""
    modules = net.modules()
    return any(isinstance(module, nn.Conv2d) and module.groups == module.in_channels > 1 for module in modules)


def weights_key(net: Backbone) -> str:
    """A key that changes with the weights and nothing else; a sum would depend on layout and threads."""
    digest = hashlib.blake2b(digest_size=16)
    for value in net.state_dict().values():
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


class FeatureNet(nn.Module):
    """Pooled features of some stages, as all protocols use them: `(B, 3, H, W)` → `{stage: (B, C)}`.

    The last stage's are the network's own feature; those of earlier stages are the mean over positions.
    """

    def __init__(self, net: Backbone, stages: tuple[int, ...] = (4,)) -> None:
        super().__init__()
        self.net = net
        self.stages = stages

    def forward(self, images: Tensor) -> dict[int, Tensor]:
        return _pooled(stage_outputs(self.net, images), self.stages)

    def __call__(self, *args: Any, **kwargs: Any) -> dict[int, Tensor]:
        return super().__call__(*args, **kwargs)


def _pooled(outputs: StageOutputs, stages: tuple[int, ...]) -> dict[int, Tensor]:
    return {s: outputs.feature if s == STAGES[-1] else outputs.maps[s].mean(dim=(2, 3)) for s in stages}


def noise_images(net: Backbone) -> Tensor:
    """Two small images, always the same, for trying out a network: `(2, C, H, W)` on its device."""
    like = next(net.parameters(), torch.zeros(()))  # raw pixels have none
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, image_channels(net), _BLANK_SIDE, _BLANK_SIDE, generator=generator).to(like)


def _outputs_of_blank_image(net: Backbone) -> StageOutputs:
    """Run the network once to find its shapes; training mode and running statistics are unchanged."""
    with torch.no_grad(), in_eval_mode(net):
        return stage_outputs(net, torch.zeros_like(noise_images(net)[:1]))


@contextlib.contextmanager
def in_eval_mode(net: nn.Module) -> Iterator[None]:
    """Eval mode inside the block; afterwards every module is back in its previous mode, train or eval."""
    modes = {module: module.training for module in net.modules()}
    net.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
