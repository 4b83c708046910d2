"""A backbone with a linear classifier."""

from torch import Tensor, nn
from torchvision.models.resnet import ResNet

from csml.models.backbones import FeatureNet, stage_channels


class Classifier(nn.Module):
    """Images `(B, 3, H, W)` → logits `(B, classes)`, by a linear layer on the pooled last stage."""

    def __init__(self, backbone: ResNet, classes: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.fc = nn.Linear(stage_channels(backbone)[4], classes)
        nn.init.normal_(self.fc.weight, std=0.01)
        nn.init.zeros_(self.fc.bias)

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(FeatureNet(self.backbone)(images)[4])
