"""Plain BatchNorm lets a query recognise its batch; split BatchNorm with shuffled keys does not.

docs/method.md#batchnorm
"""

import pytest
import torch
from torch import Tensor, nn

from csml.config import ContrastConfig
from csml.methods.contrast import MomentumContrast

BATCH, OTHER_BATCHES, STEPS = 16, 4, 256


def squares(count: int) -> Tensor:
    """A square of random colour on black. What BatchNorm makes of the black tells the statistics of the batch."""
    generator = torch.Generator().manual_seed(1)
    colour = torch.randn(count, 3, 1, 1, generator=generator) * torch.rand(count, 1, 1, 1, generator=generator) * 2
    images = torch.zeros(count, 3, 16, 16)
    images[:, :, 4:12, 4:12] = colour
    return images


class Background(nn.Module):
    """The best cheat there is: its embedding `(B, 8)` is what BatchNorm makes of the black corner, and nothing else."""

    stages, dims = (4,), {4: 8}

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 8, 3, stride=2, bias=False), nn.BatchNorm2d(8)

    def forward(self, images: Tensor) -> dict[int, Tensor]:
        return {4: self.norm(self.convolution(images))[:, :, 0, 0]}


def recognised(splits: int, seed: int) -> float:
    """How often a query is nearer to the key of *another* image of its batch than to every key of other batches, which
    are encoded at the same moment with the same weights. Nothing but the batch can be recognised."""
    images = squares(1024)
    torch.manual_seed(seed)
    method = MomentumContrast(Background(), 64, ContrastConfig(bn_splits=splits))  # type: ignore[arg-type]
    generator, right = torch.Generator().manual_seed(seed), 0.0
    with torch.no_grad():
        for _ in range(STEPS):
            anchors, *others = torch.randperm(len(images), generator=generator).split(BATCH)[: 1 + OTHER_BATCHES]
            query = method.query_encoder(images[anchors])[4]
            another = images[anchors.roll(BATCH // 2)]  # never in the same sub-batch as the query
            positive = method.encode_keys(another, generator, BATCH)[4]
            negatives = torch.cat([method.encode_keys(images[ids], generator, BATCH)[4] for ids in others])
            nearest = torch.cdist(query, negatives).amin(dim=1)  # (B,)
            right += ((query - positive).norm(dim=1) < nearest).float().mean().item()
    return right / STEPS


@pytest.mark.parametrize("seed", range(2))
def test_with_plain_batchnorm_every_query_recognises_its_batch(seed: int) -> None:
    assert recognised(1, seed) == 1


@pytest.mark.parametrize("seed", range(2))
def test_with_split_batchnorm_hardly_any_does(seed: int) -> None:
    """A few: in two of fifteen cases the sub-batch of the key contains an image of the sub-batch of the query."""
    assert recognised(8, seed) < 0.1  # worst of 8 seeds: 0.054; chance is 0.015
