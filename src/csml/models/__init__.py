"""Networks: backbones by name, their four stages, the heads of pre-training, BatchNorm variants, detectors."""

from csml.models.backbones import FeatureNet, build_backbone, stage_maps
from csml.models.encoder import Encoder

__all__ = ["Encoder", "FeatureNet", "build_backbone", "stage_maps"]
