"""Raw pixels as a backbone: what every learnt representation has to beat."""

import torch.nn.functional as F
from torch import Tensor, nn

from csml.pixels import Normalization

SIDE = 32
"""Pixels of the picture's side."""
NORMALIZATION = Normalization((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
"""To [−1, 1], the same for every colour: distances between pictures stay what they are."""


class RawPixels(nn.Module):
    """The feature of an image is its 32×32 picture: `(B, 3, H, W)` → `(B, 3 · 32 · 32)`."""

    def picture(self, images: Tensor) -> Tensor:
        """The picture `(B, 3, 32, 32)`; images of that size as they are."""
        return images if images.shape[2:] == (SIDE, SIDE) else F.adaptive_avg_pool2d(images, SIDE)

    def forward(self, images: Tensor) -> Tensor:
        return self.picture(images).flatten(1)  # (B, 3072)
