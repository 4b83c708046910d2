"""MoCo v2 with lightly's parts, put together as its documentation of MoCo puts them together."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torchvision
from lightly.loss import NTXentLoss
from lightly.models.modules import MoCoProjectionHead
from lightly.models.utils import deactivate_requires_grad, update_momentum
from lightly.transforms import MoCoV2Transform
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from csml.training.schedule import learning_rate


@dataclass(frozen=True)
class Constants:
    """What may be set; by default as in the documentation of lightly's MoCo."""

    lr: float = 0.06
    momentum: float = 0.0
    weight_decay: float = 0.0
    temperature: float = 0.5
    """the default of NTXentLoss, which the documentation leaves as it is"""
    follow: float = 0.996
    """of the key encoder"""
    queue: int = 4096
    epochs: int | None = None
    """over which the learning rate falls to 0 as a cosine, after one in which it rises; None: it stays"""
    views: dict[str, Any] = field(default_factory=dict)
    """of MoCoV2Transform"""


DOCUMENTED = Constants()


class _Pictures(Dataset[tuple[list[Tensor], int]]):
    """What torchvision's CIFAR-10 gives: an array in memory, a PIL picture per item, the transform on it."""

    def __init__(self, pixels: np.ndarray, size: int, views: dict[str, Any]) -> None:
        self.pixels = pixels
        self.transform = MoCoV2Transform(input_size=size, **views)

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> tuple[list[Tensor], int]:
        return self.transform(Image.fromarray(self.pixels[index])), 0


def resnet18(small_images: bool) -> nn.Module:
    net = torchvision.models.resnet18()
    if small_images:
        net.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        net.maxpool = nn.Identity()
    net.fc = nn.Identity()
    return net


def lightly_epoch(pixels: np.ndarray, batch: int, small_images: bool, workers: int) -> Callable[[], None]:
    """One epoch over uint8 `(N, S, S, 3)`: two views per picture, a memory bank of 4096, SGD."""
    return epoch_with(resnet18(small_images), 512, pixels, batch, workers)


def epoch_with(
    net: nn.Module,
    channels: int,
    pixels: np.ndarray,
    batch: int,
    workers: int,
    constants: Constants = DOCUMENTED,
) -> Callable[[], None]:
    """The same with another network, `(B, 3, S, S)` → `(B, channels)`, and perhaps other constants."""
    query = nn.Sequential(net, MoCoProjectionHead(channels, channels, 128))
    key = copy.deepcopy(query)
    deactivate_requires_grad(key)
    criterion = NTXentLoss(temperature=constants.temperature, memory_bank_size=(constants.queue, 128))
    optimizer = torch.optim.SGD(
        query.parameters(), constants.lr, momentum=constants.momentum, weight_decay=constants.weight_decay
    )
    pictures = _Pictures(pixels, pixels.shape[1], constants.views)
    loader = DataLoader(pictures, batch_size=batch, shuffle=True, drop_last=True, num_workers=workers)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, _course(constants.epochs, len(loader)))

    def epoch() -> None:
        for (view, other), _ in loader:
            update_momentum(query, key, m=constants.follow)
            with torch.no_grad():
                keys = key(other)
            loss = criterion(query(view), keys)
            loss.backward()
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()

    return epoch


def _course(epochs: int | None, steps: int) -> Callable[[int], float]:
    """The learning rate of each step, as a share of the highest."""
    if epochs is None:
        return lambda step: 1.0
    return lambda step: learning_rate(step, epochs * steps, 1.0, steps)
