"""Pixel values of any bit depth as bytes: which channels a network gets, and how 16 bits become 8."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from PIL import Image

from csml.config import ImagesConfig

_LOW, _HIGH = 0.5, 99.5
"""Percentiles that become 0 and 255."""


@dataclass(frozen=True)
class Reading:
    """How the pixels of a file become the channels of a crop."""

    channels: int = 3
    sixteen_bit: Literal["full", "percentile"] = "full"


COLOUR = Reading()
"""Three channels."""


def reading_of(config: ImagesConfig) -> Reading:
    """The channels and bit depth of the settings."""
    return Reading(config.channels, config.sixteen_bit)


def as_bytes(values: np.ndarray, reading: Reading) -> np.ndarray:
    """Values of any type `(H, W[, C])` → uint8 of the same shape.

    8 bits stay as they are. 16 bits are divided by 257, so that 65 535 becomes 255. Other types have no fixed range, so
    the range of the values in the image is used. With `percentile`, each channel of anything deeper than 8 bits is
    stretched from its 0.5 to its 99.5 percentile.
    """
    if values.dtype == np.uint8:
        return values
    if values.dtype == bool:
        return values.astype(np.uint8) * np.uint8(255)
    numbers = np.nan_to_num(values.astype(np.float64), posinf=0.0, neginf=0.0)
    if reading.sixteen_bit == "percentile":
        low, high = np.percentile(numbers, (_LOW, _HIGH), axis=(0, 1))  # () or (C,)
    elif values.dtype == np.uint16:
        low, high = np.float64(0), np.float64(65535)
    else:
        low, high = numbers.min(), numbers.max()
    scale = np.divide(255, high - low, out=np.zeros_like(high), where=high > low)
    return ((numbers - low) * scale).round().clip(0, 255).astype(np.uint8)


def false_colour(values: np.ndarray) -> Image.Image:
    """uint8 `(H, W, C)` as a picture: one channel in grey, two in red and green, the first three of more."""
    height, width, channels = values.shape
    if channels == 1:
        return Image.fromarray(np.ascontiguousarray(values[..., 0])).convert("RGB")
    shown = np.zeros((height, width, 3), np.uint8)
    shown[..., : min(3, channels)] = values[..., :3]
    return Image.fromarray(shown)
