"""Raw pixels as a backbone: a baseline for learnt representations."""

import torch.nn.functional as F
from torch import Tensor, nn

from csml.pixels import Normalization

SIDE = 32
"""Pixels of the picture's side."""


class RawPixels(nn.Module):
    """The feature of an image is its 32×32 picture: `(B, C, H, W)` → `(B, C · 32 · 32)`."""

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        self.channels = channels

    @property
    def normalization(self) -> Normalization:
        """To [−1, 1], the same for every channel, so that relative distances between pictures are unchanged."""
        return Normalization((0.5,) * self.channels, (0.5,) * self.channels)

    def picture(self, images: Tensor) -> Tensor:
        """The picture `(B, C, 32, 32)`; images of that size are unchanged."""
        return images if images.shape[2:] == (SIDE, SIDE) else F.adaptive_avg_pool2d(images, SIDE)

    def forward(self, images: Tensor) -> Tensor:
        return self.picture(images).flatten(1)  # (B, 1024 · C)
