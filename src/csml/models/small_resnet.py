"""Small ResNets of our own: four stages of one block each, for small images on a CPU."""

from torch import nn
from torchvision.models.resnet import BasicBlock, ResNet

WIDTHS = {"small": (32, 64, 128, 256), "tiny": (24, 48, 96, 192), "nano": (16, 32, 64, 128)}
"""Channels of the four stages, by the name of the network."""


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
