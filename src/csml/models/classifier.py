"""A backbone with a linear classifier."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from csml.models.backbones import Backbone, FeatureNet, feature_channels


class Classifier(nn.Module):
    """Images `(B, 3, H, W)` → logits `(B, classes)`, by a linear layer on the network's feature.

    Args:
        backbone: the network.
        classes: number of classes.
        unit: normalise features to unit length before the linear layer.
    """

    def __init__(self, backbone: Backbone, classes: int, unit: bool = False) -> None:
        super().__init__()
        self.backbone = backbone
        self.unit = unit
        self.fc = nn.Linear(feature_channels(backbone)[4], classes)
        nn.init.normal_(self.fc.weight, std=0.01)
        nn.init.zeros_(self.fc.bias)

    def forward(self, images: Tensor) -> Tensor:
        return self.scores(self.features(images))

    def features(self, images: Tensor) -> Tensor:
        """Images `(B, 3, H, W)` → pooled features `(B, C)`."""
        return FeatureNet(self.backbone)(images)[4]

    def scores(self, features: Tensor) -> Tensor:
        """Pooled features `(B, C)` → logits `(B, classes)`."""
        if not self.unit:
            return self.fc(features)
        # In full precision, because rounding errors of scores carry over to probabilities.
        with torch.autocast(features.device.type, enabled=False):
            return self.fc(F.normalize(features.float()))
