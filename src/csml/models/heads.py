"""The heads between a stage and its loss; they are dropped after pre-training (docs/method.md#levels)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.models.resnet import Bottleneck


def mlp(inputs: int, hidden: int, outputs: int, norm: bool) -> nn.Sequential:
    """A two-layer MLP, `(B, inputs)` → `(B, outputs)`, with BatchNorm as in BYOL or without as in MoCo v2."""
    between: list[nn.Module] = [nn.BatchNorm1d(hidden)] if norm else []
    return nn.Sequential(nn.Linear(inputs, hidden), *between, nn.ReLU(inplace=True), nn.Linear(hidden, outputs))


class ProjectionHead(nn.Module):
    """Two-layer MLP and L2 normalisation: `(B, C)` → `(B, D)`."""

    def __init__(self, channels: int, hidden: int, dim: int, norm: bool) -> None:
        super().__init__()
        self.mlp = mlp(channels, hidden, dim, norm)

    def forward(self, features: Tensor) -> Tensor:
        return _unit(self.mlp(features))


class LastStageHead(nn.Module):
    """Projection of the network's feature: `(B, C)` → `(B, D)`."""

    def __init__(self, channels: int, hidden: int, dim: int, norm: bool) -> None:
        super().__init__()
        self.projection = ProjectionHead(channels, hidden, dim, norm)

    def forward(self, feature: Tensor) -> Tensor:
        return self.projection(feature)


class FeatureHead(nn.Module):
    """The network's feature itself as embedding, relative to a centre: `(B, C)` → `(B, C)`.

    For networks that start from good weights: the loss acts on the same feature that is used afterwards. The centre,
    the mean feature at the start, removes the component common to all images, which would make all cosines large.
    """

    center: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("center", torch.zeros(channels))

    def forward(self, feature: Tensor) -> Tensor:
        return _unit(feature - self.center)


class CompanionHead(nn.Module):
    """One residual bottleneck, global average pool and projection: `(B, C, H, W)` → `(B, D)`.

    The bottleneck keeps the gradient of this stage's loss from competing with that of later stages. Its inner
    width is `narrowing` times smaller: 4 gives the block of this stage in a ResNet-50, 1 keeps the channels like
    BasicBlocks.
    """

    def __init__(self, channels: int, hidden: int, dim: int, norm: bool, narrowing: int) -> None:
        super().__init__()
        planes = channels // Bottleneck.expansion
        self.bottleneck = Bottleneck(channels, planes, base_width=64 * Bottleneck.expansion // narrowing)
        self.projection = ProjectionHead(channels, hidden, dim, norm)
        for module in self.bottleneck.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, fmap: Tensor) -> Tensor:
        return self.projection(self.bottleneck(fmap).mean(dim=(2, 3)))


def _unit(embedding: Tensor) -> Tensor:
    # At least float32: half-precision unit vectors have errors of up to 1 %, too much when divided by τ.
    return F.normalize(embedding.to(torch.promote_types(embedding.dtype, torch.float32)), dim=1)
