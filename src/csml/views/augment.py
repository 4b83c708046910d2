"""Colour jitter, greyscale, blur, solarisation, flip and normalisation of a batch on the training device.

Random numbers are drawn on the CPU: the draws do not depend on the device, and no step waits for the device.
Described in docs/method.md#views.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from csml.config import AugmentationConfig
from csml.distributed.world import Part
from csml.pixels import Normalization, normalize

_LUMA = (0.2989, 0.587, 0.114)
ORDER_GROUP = 64
"""Number of consecutive samples that share a random order of the four jitter operations; keeps GPU kernels few."""
_CACHED = 1 << 18
"""Floats that a CPU processes at a time: 1 MB, which fits its cache."""
_BLURRED_AT_ONCE = 1 << 21
"""Floats that are blurred at a time, which bounds the memory."""


@dataclass(frozen=True)
class AugmentParams:
    """Parameters of the augmentation of B samples; a neutral value switches an operation off for a sample."""

    brightness: Tensor
    """`(B,)` factors, neutral 1"""
    contrast: Tensor
    saturation: Tensor
    hue: Tensor
    """`(B,)` shifts as a share of the colour circle, neutral 0"""
    order: Tensor
    """`(B, 4)` permutations of 0 brightness, 1 contrast, 2 saturation, 3 hue; equal within an ORDER_GROUP"""
    gray: Tensor
    """`(B,)` bool"""
    sigma: Tensor
    """`(B,)` standard deviation of the blur, 0 for none"""
    solarize: Tensor
    """`(B,)` bool"""
    flip: Tensor
    """`(B,)` bool"""
    start: int = 0
    """row of the whole batch at which these samples start"""


def draw_params(
    samples: int, config: AugmentationConfig, generator: torch.Generator, part: Part | None = None
) -> AugmentParams:
    """Draw the parameters of `samples` samples with the distributions of MoCo v2's torchvision transforms.

    With `part`, the samples are only some rows of a batch. The parameters of the whole batch are drawn and then
    sliced, so a sample's parameters do not depend on the number of processes.
    """
    start, batch = (part.start, part.total) if part else (0, samples)

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(batch, generator=generator)

    def chance(probability: float) -> Tensor:
        return torch.rand(batch, generator=generator) < probability

    jittered = chance(config.jitter)

    def factor(strength: float) -> Tensor:
        return torch.where(jittered, uniform(max(0.0, 1 - strength), 1 + strength), 1.0)

    groups = math.ceil(batch / ORDER_GROUP)
    order = torch.rand(groups, 4, generator=generator).argsort(dim=1)  # (groups, 4)
    drawn = {
        "brightness": factor(config.brightness),
        "contrast": factor(config.contrast),
        "saturation": factor(config.saturation),
        "hue": torch.where(jittered, uniform(-config.hue, config.hue), 0.0),
        "order": order.repeat_interleave(ORDER_GROUP, dim=0)[:batch],
        "gray": chance(config.gray),
        "sigma": torch.where(chance(config.blur), uniform(*config.blur_sigma), 0.0),
        "solarize": chance(config.solarize),
        "flip": chance(config.flip),
    }
    return AugmentParams(**{name: values[start : start + samples] for name, values in drawn.items()}, start=start)


def augment(crops: Tensor, params: AugmentParams, max_sigma: float, by: Normalization | None = None) -> Tensor:
    """Augment and normalise: uint8 crops `(B, C, S, S)` → float32 `(B, C, S, S)` on the same device.

    Saturation, hue and greyscale are those of colours: with C ≠ 3 they are left out.
    """
    # Flip first, while pixels are bytes: cheaper, and it commutes with every other operation.
    flipped = params.flip.nonzero()[:, 0].to(crops.device, non_blocking=True)  # (f,)
    crops = crops.index_copy(0, flipped, crops.index_select(0, flipped).flip(3))
    x = torch.empty(crops.shape, device=crops.device)  # (B, C, S, S)
    for rows in _chunks(crops, params.start):
        x[rows].copy_(crops[rows]).div_(255)
        _jitter(x[rows], params, rows)
        if crops.shape[1] == 3 and params.gray[rows].any():
            gray = _column(params.gray[rows].float(), x)
            x[rows].lerp_(_luma(x[rows]), gray)
    for sigma, index in _blurred(params.sigma, max(1, _BLURRED_AT_ONCE // crops[0].numel())):
        index = index.to(x.device, non_blocking=True)
        sigma = sigma.to(x.device, non_blocking=True)
        x.index_copy_(0, index, gaussian_blur(x.index_select(0, index), sigma, radius=math.ceil(3 * max_sigma)))
    if params.solarize.any():
        x = torch.where(_column(params.solarize, x) & (x >= 0.5), 1 - x, x)
    return normalize(x, by)


def _chunks(crops: Tensor, start: int) -> list[slice]:
    """Slices of rows that share a jitter order; on a CPU small enough to stay in its cache through all operations."""
    size = ORDER_GROUP
    if crops.device.type == "cpu":
        size = min(size, max(1, _CACHED // crops[:1].numel()))
    borders = [0, *range(-start % ORDER_GROUP or ORDER_GROUP, len(crops), ORDER_GROUP), len(crops)]
    return [slice(row, min(row + size, end)) for begin, end in pairwise(borders) for row in range(begin, end, size)]


def _blurred(sigma: Tensor, at_once: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield standard deviations and row indices of the samples to blur, a few at a time.

    Both stay on the CPU, so that selecting the rows does not synchronise with the device.
    """
    rows = sigma.nonzero()[:, 0]  # (b,)
    for chunk in rows.split(at_once) if len(rows) else ():
        yield sigma[chunk], chunk


def _column(values: Tensor, like: Tensor) -> Tensor:
    """`(G,)` → `(G, 1, 1, 1)` on the device of `like`"""
    return values.to(like.device, non_blocking=True)[:, None, None, None]


def _luma(x: Tensor) -> Tensor:
    """`(B, C, H, W)` → `(B, 1, H, W)`: the brightness of colours, the mean of other channels."""
    if x.shape[1] != 3:
        return x.mean(dim=1, keepdim=True)
    red, green, blue = x.split(1, dim=1)
    return (_LUMA[0] * red).add_(green, alpha=_LUMA[1]).add_(blue, alpha=_LUMA[2])


def _jitter(x: Tensor, params: AugmentParams, rows: slice) -> None:
    """Apply the four operations, in their drawn order and in place, to rows of one group; clamp as torchvision does."""
    if bool((params.brightness[rows] == 1).all() and (params.hue[rows] == 0).all()):
        return  # one coin switches all four operations
    colour = x.shape[1] == 3
    for operation in params.order[rows.start].tolist():
        if operation == 0:
            x.mul_(_column(params.brightness[rows], x)).clamp_(0, 1)
        elif operation == 1:
            factor = _column(params.contrast[rows], x)
            mean = _luma(x).mean(dim=(2, 3), keepdim=True)  # (G, 1, 1, 1)
            x.mul_(factor).add_((1 - factor) * mean).clamp_(0, 1)
        elif operation == 2 and colour:
            x.lerp_(_luma(x), _column(1 - params.saturation[rows], x)).clamp_(0, 1)
        elif operation == 3 and colour and params.hue[rows].any():
            shift_hue_(x, _column(params.hue[rows], x))


def shift_hue_(x: Tensor, shift: Tensor) -> None:
    """Rotate the hue of `(B, 3, H, W)` in [0, 1] by `shift` `(B, 1, 1, 1)` turns of the HSV colour circle, in place.

    Branch-free: on a CPU, `where` and `%` cost ten times as much as vectorised arithmetic.
    """
    red, green, blue = x.split(1, dim=1)  # (B, 1, H, W) each
    value = torch.maximum(torch.maximum(red, green), blue)
    chroma = value - torch.minimum(torch.minimum(red, green), blue)
    scale = chroma.clamp(min=1e-12).reciprocal_()
    # Hue in sixths of a turn: around 0 if red is largest, 2 if green, 4 if blue. sign(value − red) is 0 if red is.
    sextant = (red - green).mul_(scale).add_(4)
    sextant = torch.lerp((blue - red).mul_(scale).add_(2), sextant, (value - green).sign_())
    sextant = torch.lerp((green - blue).mul_(scale), sextant, (value - red).sign_())
    turn = sextant.div_(6).add_(shift)  # (B, 1, H, W)
    # How far each channel lies below the value: 0 within a sixth of a turn of its own hue, the full chroma beyond a
    # third. Measured from the opposite hues: red 1/2, green 5/6, blue 1/6.
    opposite = torch.tensor([1 / 2, 5 / 6, 1 / 6], dtype=x.dtype).to(x.device, non_blocking=True)[:, None, None]
    away = turn - opposite  # (B, 3, H, W)
    away.sub_(away.round()).abs_()  # distance to the opposite hue, in turns
    fall = away.mul_(-6).add_(2).clamp_(0, 1)
    torch.sub(value, fall.mul_(chroma), out=x)


def gaussian_blur(x: Tensor, sigma: Tensor, radius: int) -> Tensor:
    """Blur `(B, C, S, S)` with one `sigma` `(B,)` per sample; 2·radius + 1 taps, reflected borders.

    One depthwise convolution per axis blurs all samples at once, each with its own sigma.
    """
    batch, channels, size, _ = x.shape
    radius = min(radius, size - 1)
    taps = torch.arange(-radius, radius + 1, device=x.device)
    kernel = torch.exp(-0.5 * (taps / sigma[:, None]) ** 2)  # (B, 2R+1)
    kernel = kernel * (kernel > 1e-9)  # denormal weights would make it four times slower
    kernel = (kernel / kernel.sum(dim=1, keepdim=True)).repeat_interleave(channels, dim=0)  # (B·C, 2R+1)
    x = F.pad(x, [radius] * 4, mode="reflect").view(1, batch * channels, size + 2 * radius, size + 2 * radius)
    x = F.conv2d(x, kernel[:, None, None, :], groups=batch * channels)
    x = F.conv2d(x, kernel[:, None, :, None], groups=batch * channels)
    return x.view(batch, channels, size, size)
