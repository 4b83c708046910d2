"""A backbone with a linear classifier."""

from torch import Tensor, nn

from csml.models.backbones import Backbone, FeatureNet, feature_channels


class Classifier(nn.Module):
    """Images `(B, 3, H, W)` → logits `(B, classes)`, by a linear layer on the network's feature."""

    def __init__(self, backbone: Backbone, classes: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.fc = nn.Linear(feature_channels(backbone)[4], classes)
        nn.init.normal_(self.fc.weight, std=0.01)
        nn.init.zeros_(self.fc.bias)

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(FeatureNet(self.backbone)(images)[4])
