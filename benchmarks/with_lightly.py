"""MoCo v2 with lightly's parts, put together as its documentation of MoCo puts them together."""

import copy
from collections.abc import Callable

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


class _Pictures(Dataset[tuple[list[Tensor], int]]):
    """What torchvision's CIFAR-10 gives: an array in memory, a PIL picture per item, the transform on it."""

    def __init__(self, pixels: np.ndarray, size: int) -> None:
        self.pixels = pixels
        self.transform = MoCoV2Transform(input_size=size)

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


def epoch_with(net: nn.Module, channels: int, pixels: np.ndarray, batch: int, workers: int) -> Callable[[], None]:
    """The same with another network, `(B, 3, S, S)` → `(B, channels)`."""
    query = nn.Sequential(net, MoCoProjectionHead(channels, channels, 128))
    key = copy.deepcopy(query)
    deactivate_requires_grad(key)
    criterion = NTXentLoss(memory_bank_size=(4096, 128))
    optimizer = torch.optim.SGD(query.parameters(), lr=0.06)
    loader = DataLoader(
        _Pictures(pixels, pixels.shape[1]), batch_size=batch, shuffle=True, drop_last=True, num_workers=workers
    )

    def epoch() -> None:
        for (view, other), _ in loader:
            update_momentum(query, key, m=0.996)
            with torch.no_grad():
                keys = key(other)
            loss = criterion(query(view), keys)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    return epoch
