"""Backbones by name: torchvision's ResNets, and small ResNets with the same four stages for small images."""

from typing import Any

import torch
import torchvision
from torch import Tensor, nn
from torchvision.models.resnet import BasicBlock, ResNet

from csml.config import BACKBONES, STAGES, TORCHVISION

_SMALL_WIDTHS = {"small": (32, 64, 128, 256), "tiny": (24, 48, 96, 192), "nano": (16, 32, 64, 128)}


class SmallResNet(ResNet):
    """A ResNet with one BasicBlock per stage. Modules have torchvision's names, so it works wherever a ResNet does."""

    def __init__(self, widths: tuple[int, int, int, int]) -> None:
        nn.Module.__init__(self)
        self.conv1 = nn.Conv2d(3, widths[0], 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.Identity()
        channels = (widths[0], *widths)
        stages = [_basic_stage(channels[i], channels[i + 1], stride=1 if i == 0 else 2) for i in range(4)]
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(widths[3], 1000)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def _basic_stage(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    shortcut: nn.Module | None = None
    if stride != 1 or inputs != outputs:
        shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
    return nn.Sequential(BasicBlock(inputs, outputs, stride, shortcut))


def build_backbone(name: str, small_images: bool = False) -> ResNet:
    """Build a randomly initialised network whose `fc` is the identity: images `(B, 3, H, W)` → features `(B, C)`.

    Args:
        name: one of `BACKBONES`.
        small_images: use a 3×3 first convolution with stride 1 and no max-pool, for images of about 32 pixels.
    """
    if name in _SMALL_WIDTHS:
        net: ResNet = SmallResNet(_SMALL_WIDTHS[name])
    elif name in TORCHVISION:
        net = getattr(torchvision.models, name)(weights=None)
    else:
        raise ValueError(f"backbone {name!r} is unknown; choose one of {', '.join(BACKBONES)}")
    if small_images:
        width = net.conv1.out_channels
        net.conv1 = nn.Conv2d(3, width, 3, stride=1, padding=1, bias=False)
        nn.init.kaiming_normal_(net.conv1.weight, mode="fan_out", nonlinearity="relu")
        net.maxpool = nn.Identity()
    net.fc = nn.Identity()
    return net


def stage_maps(net: ResNet, images: Tensor) -> dict[int, Tensor]:
    """The output of each stage: `{1: (B, C1, H1, W1), …, 4: (B, C4, H4, W4)}`."""
    x = net.maxpool(net.relu(net.bn1(net.conv1(images))))
    maps = {}
    for stage in STAGES:
        x = getattr(net, f"layer{stage}")(x)
        maps[stage] = x
    return maps


def stage_channels(net: ResNet) -> dict[int, int]:
    """Channels of each stage's feature map."""
    return {stage: fmap.shape[1] for stage, fmap in _maps_of_blank_image(net, side=32).items()}


def stage_strides(net: ResNet) -> dict[int, int]:
    """Stride of each stage's feature map, in pixels of the image."""
    return {stage: 64 // fmap.shape[3] for stage, fmap in _maps_of_blank_image(net, side=64).items()}


def _maps_of_blank_image(net: ResNet, side: int) -> dict[int, Tensor]:
    """Run the network once to find out shapes; training mode and running statistics stay as they are."""
    modes = {module: module.training for module in net.modules()}
    device = next(net.parameters()).device
    with torch.no_grad():
        maps = stage_maps(net.eval(), torch.zeros(1, 3, side, side, device=device))
    for module, mode in modes.items():
        module.training = mode
    return maps


def weights_key(net: ResNet) -> list[float]:
    """One sum per tensor: a key that changes when the weights do."""
    return [float(value.double().sum()) for value in net.state_dict().values()]


class FeatureNet(nn.Module):
    """Global-average-pooled features of some stages, as all protocols use them: `(B, 3, H, W)` → `{stage: (B, C)}`."""

    def __init__(self, net: ResNet, stages: tuple[int, ...] = (4,)) -> None:
        super().__init__()
        self.net = net
        self.stages = stages

    def forward(self, images: Tensor) -> dict[int, Tensor]:
        maps = stage_maps(self.net, images)
        return {stage: maps[stage].mean(dim=(2, 3)) for stage in self.stages}

    def __call__(self, *args: Any, **kwargs: Any) -> dict[int, Tensor]:
        return super().__call__(*args, **kwargs)
