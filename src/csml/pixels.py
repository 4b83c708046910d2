"""Random and centre crops of whole batches, antialiased as in torchvision, and normalisation."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

MEAN = (0.485, 0.456, 0.406)
"""Mean of ImageNet's RGB values, in [0, 1]."""
STD = (0.229, 0.224, 0.225)
"""Standard deviation of ImageNet's RGB values."""


class Normalization(NamedTuple):
    """How pixels in [0, 1] are normalised for a network, by channel."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


IMAGENET = Normalization(MEAN, STD)
CROP_NUMBERS = 22
"""Uniform random numbers that determine one random crop for any image size: ten attempts at area and ratio, then y,
x."""


@dataclass(frozen=True)
class CropSpec:
    """A random crop that is cut from every anchor, or from one of its neighbours."""

    name: str
    image: int
    """0: the anchor; i: its i-th neighbour"""
    size: int
    """side in pixels after resizing"""
    scale: tuple[float, float]
    """share of the image's area"""
    ratio: tuple[float, float]
    """width / height"""


def random_boxes(numbers: Tensor, sizes: Tensor, scale: tuple[float, float], ratio: tuple[float, float]) -> Tensor:
    """Boxes with the distribution of torchvision's RandomResizedCrop.

    Args:
        numbers: `(B, CROP_NUMBERS)` uniform in [0, 1).
        sizes: `(B, 2)` heights and widths of the images.
        scale: range of the share of the area.
        ratio: range of width / height.

    Returns:
        `(B, 4)` int64: top, left, height, width.
    """
    height, width = sizes.double().unbind(1)  # (B,), (B,)
    numbers = numbers.double()
    area = (height * width)[:, None] * (scale[0] + numbers[:, :10] * (scale[1] - scale[0]))  # (B, 10)
    low, high = math.log(ratio[0]), math.log(ratio[1])
    shape = torch.exp(low + numbers[:, 10:20] * (high - low))  # (B, 10)
    w = torch.round(torch.sqrt(area * shape))
    h = torch.round(torch.sqrt(area / shape))
    fits = (w > 0) & (w <= width[:, None]) & (h > 0) & (h <= height[:, None])  # (B, 10)
    first = fits.int().argmax(dim=1, keepdim=True)  # (B, 1): the first try that fits
    w, h = w.gather(1, first)[:, 0], h.gather(1, first)[:, 0]
    # If no try fits: the largest central crop with an allowed ratio.
    fallback_w = torch.minimum(width, torch.round(height * ratio[1]))
    fallback_h = torch.minimum(height, torch.round(width / ratio[0]))
    hit = fits.any(dim=1)
    w, h = torch.where(hit, w, fallback_w), torch.where(hit, h, fallback_h)
    top = torch.where(hit, torch.floor(numbers[:, 20] * (height - h + 1)), torch.floor((height - h) / 2))
    left = torch.where(hit, torch.floor(numbers[:, 21] * (width - w + 1)), torch.floor((width - w) / 2))
    return torch.stack([top, left, h, w], dim=1).long()


def center_boxes(sizes: Tensor, share: float) -> Tensor:
    """Central squares with side `share` × shorter side: sizes `(B, 2)` → `(B, 4)` int64 top, left, height, width."""
    side = torch.round(sizes.amin(dim=1) * share).clamp(min=1)  # (B,)
    corner = torch.floor((sizes - side[:, None]) / 2)  # (B, 2)
    return torch.cat([corner, side[:, None], side[:, None]], dim=1).long()


def crop_resize(images: Tensor, boxes: Tensor, size: int) -> Tensor:
    """Cut one box from each image and resize it: uint8 `(B, H, W, C)`, boxes `(B, 4)` → uint8 `(B, C, size, size)`."""
    batch, height, width, channels = images.shape
    rows = _resampling(boxes[:, 0], boxes[:, 2], height, size)  # (B, S, H)
    columns = _resampling(boxes[:, 1], boxes[:, 3], width, size)  # (B, S, W)
    x = images.permute(0, 1, 3, 2).reshape(batch, height * channels, width).float()  # (B, H·C, W)
    x = torch.bmm(x, columns.transpose(1, 2))  # (B, H·C, S)
    x = torch.bmm(rows, x.view(batch, height, channels * size))  # (B, S, C·S)
    x = x.add_(0.5).clamp_(0, 255).to(torch.uint8)
    return x.view(batch, size, channels, size).permute(0, 2, 1, 3).contiguous()  # (B, C, S, S)


def _resampling(start: Tensor, length: Tensor, inputs: int, outputs: int) -> Tensor:
    """Antialiased bilinear weights `(B, outputs, inputs)`, zero outside of [start, start + length)."""
    scale = (length.float() / outputs)[:, None, None]  # (B, 1, 1)
    place = torch.arange(inputs, dtype=torch.float32) - start[:, None, None]  # (B, 1, I): pixel index inside the crop
    centre = (torch.arange(outputs, dtype=torch.float32)[:, None] + 0.5) * scale - 0.5  # (B, O, 1)
    weight = (1 - (place - centre).abs() / scale.clamp(min=1)).clamp(min=0)  # (B, O, I)
    weight = weight * ((place >= 0) & (place < length[:, None, None]))
    return weight / weight.sum(dim=2, keepdim=True)


def resized(size: tuple[int, int], side: int, max_side: int) -> tuple[int, int]:
    """Height and width after resizing: the shorter is `side`, unless the longer would then exceed `max_side`."""
    scale = min(side / min(size), max_side / max(size))
    height, width = (max(1, round(length * scale)) for length in size)
    return height, width


def normalization_of(channels: int) -> Normalization:
    """ImageNet's mean and deviation for colour images; 0.5 and 0.25 for any other number of channels."""
    return IMAGENET if channels == len(MEAN) else Normalization((0.5,) * channels, (0.25,) * channels)


def normalize(x: Tensor, by: Normalization | None = None) -> Tensor:
    """Subtract the mean and divide by the standard deviation, in place; `(B, C, H, W)` floats in [0, 1]."""
    by = by or normalization_of(x.shape[1])
    mean, std = (torch.tensor(values, dtype=x.dtype).to(x.device, non_blocking=True)[:, None, None] for values in by)
    return x.sub_(mean).div_(std)
