"""A small ResNet trained by csml: images (B, 3, H, W), RGB in [0, 1], normalised → features (B, C).

    from network import load
    net = load("FOLDER")  # the folder of this file, model.safetensors and config.json

config.json has the mean and the deviation by which the images are normalised, and the size in pixels that the network
was trained on; other sizes work too. This file needs torch and safetensors, and nothing else.
"""

import json
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor, nn


class Block(nn.Module):
    """Two 3×3 convolutions and a shortcut: `(B, inputs, H, W)` → `(B, outputs, H / stride, W / stride)`."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn1(self.conv1(x)).relu()
        return (self.bn2(self.conv2(y)) + self.downsample(x)).relu()


class Network(nn.Module):
    """One convolution and four stages of one block each; the feature is the mean of the last map."""

    def __init__(self, widths: list[int], small_images: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, widths[0], 3, stride=1 if small_images else 2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.layer1 = nn.Sequential(Block(widths[0], widths[0], 1))
        self.layer2 = nn.Sequential(Block(widths[0], widths[1], 2))
        self.layer3 = nn.Sequential(Block(widths[1], widths[2], 2))
        self.layer4 = nn.Sequential(Block(widths[2], widths[3], 2))

    def forward(self, images: Tensor) -> Tensor:
        x = self.bn1(self.conv1(images)).relu()
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return x.mean(dim=(2, 3))


def load(folder: str) -> Network:
    """Build the network and load its weights, in eval mode."""
    config = json.loads((Path(folder) / "config.json").read_text())
    net = Network(config["widths"], config["small_images"])
    net.load_state_dict(load_file(Path(folder) / "model.safetensors"))
    return net.eval()
