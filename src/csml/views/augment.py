"""Colour jitter, grey, blur, solarise, flip and normalisation of a whole batch on the training device.

The random numbers are drawn on the CPU, so that a run does not depend on the device and nothing waits for it.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from csml.config.schema import AugmentationConfig

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
_LUMA = (0.2989, 0.587, 0.114)
ORDER_GROUP = 64
"""Consecutive samples that share one random order of the four jitter operations: small enough for the cache."""


@dataclass(frozen=True)
class AugmentParams:
    """What happens to each of B samples; the neutral value where an operation was not drawn."""

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


def draw_params(batch: int, config: AugmentationConfig, generator: torch.Generator) -> AugmentParams:
    """Draw the parameters of `batch` samples, distributed as MoCo v2's torchvision transforms draw them."""

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(batch, generator=generator)

    def chance(probability: float) -> Tensor:
        return torch.rand(batch, generator=generator) < probability

    jittered = chance(config.jitter)

    def factor(strength: float) -> Tensor:
        return torch.where(jittered, uniform(max(0.0, 1 - strength), 1 + strength), 1.0)

    groups = math.ceil(batch / ORDER_GROUP)
    order = torch.rand(groups, 4, generator=generator).argsort(dim=1)  # (groups, 4)
    return AugmentParams(
        brightness=factor(config.brightness),
        contrast=factor(config.contrast),
        saturation=factor(config.saturation),
        hue=torch.where(jittered, uniform(-config.hue, config.hue), 0.0),
        order=order.repeat_interleave(ORDER_GROUP, dim=0)[:batch],
        gray=chance(config.gray),
        sigma=torch.where(chance(config.blur), uniform(*config.blur_sigma), 0.0),
        solarize=chance(config.solarize),
        flip=chance(config.flip),
    )


def augment(crops: Tensor, params: AugmentParams, max_sigma: float) -> Tensor:
    """uint8 crops `(B, 3, S, S)` → what the network sees: normalised float32 `(B, 3, S, S)` on the same device."""
    x = crops.float().div_(255)
    for start in range(0, len(x), ORDER_GROUP):
        _jitter(x[start : start + ORDER_GROUP], params, start)
    gray = params.gray.to(x.device, non_blocking=True)[:, None, None, None]
    x = torch.where(gray, _luma(x), x)
    blurred = params.sigma.nonzero()[:, 0]  # (b,), on the CPU: no synchronisation
    if len(blurred):
        index = blurred.to(x.device, non_blocking=True)
        sigma = params.sigma[blurred].to(x.device, non_blocking=True)
        x[index] = gaussian_blur(x[index], sigma, radius=math.ceil(3 * max_sigma))
    if params.solarize.any():
        solarize = params.solarize.to(x.device, non_blocking=True)[:, None, None, None]
        x = torch.where(solarize & (x >= 0.5), 1 - x, x)
    flip = params.flip.to(x.device, non_blocking=True)[:, None, None, None]
    return normalize(torch.where(flip, x.flip(3), x))


def normalize(x: Tensor) -> Tensor:
    """Subtract ImageNet's mean and divide by its deviation, in place; `(B, 3, H, W)` floats in [0, 1]."""
    mean = torch.tensor(MEAN, dtype=x.dtype).to(x.device, non_blocking=True)[:, None, None]
    std = torch.tensor(STD, dtype=x.dtype).to(x.device, non_blocking=True)[:, None, None]
    return x.sub_(mean).div_(std)


def _luma(x: Tensor) -> Tensor:
    """`(B, 3, H, W)` → `(B, 1, H, W)`"""
    red, green, blue = x.unbind(dim=1)
    return (_LUMA[0] * red + _LUMA[1] * green + _LUMA[2] * blue)[:, None]


def _jitter(x: Tensor, params: AugmentParams, start: int) -> None:
    """The four operations on one group, in the group's order, in place; each is clamped as torchvision's is."""

    def column(values: Tensor) -> Tensor:
        return values[start : start + len(x)].to(x.device, non_blocking=True)[:, None, None, None]  # (G, 1, 1, 1)

    for operation in params.order[start].tolist():
        if operation == 0:
            x.mul_(column(params.brightness)).clamp_(0, 1)
        elif operation == 1:
            factor = column(params.contrast)
            mean = _luma(x).mean(dim=(2, 3), keepdim=True)  # (G, 1, 1, 1)
            x.mul_(factor).add_((1 - factor) * mean).clamp_(0, 1)
        elif operation == 2:
            factor = column(params.saturation)
            x.copy_(torch.lerp(_luma(x), x, factor)).clamp_(0, 1)
        elif params.hue[start : start + len(x)].any():
            x.copy_(shift_hue(x, column(params.hue)[:, 0]))


def shift_hue(x: Tensor, shift: Tensor) -> Tensor:
    """Turn the hue of `(B, 3, H, W)` in [0, 1] by `shift` `(B, 1, 1)` of the colour circle, in HSV space."""
    red, green, blue = x.unbind(dim=1)  # (B, H, W) each
    value = x.amax(dim=1)
    chroma = value - x.amin(dim=1)
    safe = chroma.clamp(min=1e-12)
    sextant = torch.where(
        value == red,
        (green - blue) / safe,
        torch.where(value == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    turned = sextant + 6 * shift  # (B, H, W)
    channels = []
    for offset in (5, 3, 1):
        k = (turned + offset) % 6
        channels.append(value - chroma * torch.minimum(k, 4 - k).clamp_(0, 1))
    return torch.stack(channels, dim=1)


def gaussian_blur(x: Tensor, sigma: Tensor, radius: int) -> Tensor:
    """Blur `(B, 3, S, S)` with one `sigma` `(B,)` per sample; 2·radius + 1 taps, borders reflected.

    A blur along one side is a matrix: two batched products do it for all samples at once, whatever their sigmas.
    """
    size = x.shape[3]
    radius = min(radius, size - 1)
    taps = torch.arange(-radius, radius + 1, device=x.device)
    index = torch.arange(size, device=x.device)
    kernel = torch.exp(-0.5 * (taps / sigma[:, None]) ** 2)  # (B, 2R+1)
    kernel = kernel / kernel.sum(dim=1, keepdim=True)
    source = (index[:, None] + taps).abs()  # (S, 2R+1): reflected at 0 …
    source = (size - 1) - (size - 1 - source).abs()  # … and at S − 1
    matrix = x.new_zeros(len(x), size, size)  # (B, S, S)
    matrix.scatter_add_(2, source.expand(len(x), -1, -1), kernel[:, None].expand(-1, size, -1))
    matrix = matrix[:, None]  # (B, 1, S, S)
    return matrix @ x @ matrix.transpose(2, 3)
