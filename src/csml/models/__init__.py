"""Networks: backbones by name, their four stages, the heads that are dropped after pre-training, split BatchNorm."""

from csml.models.backbones import BACKBONES, FeatureNet, build_backbone, stage_maps
from csml.models.encoder import Encoder

__all__ = ["BACKBONES", "Encoder", "FeatureNet", "build_backbone", "stage_maps"]
