"""Networks: backbones by name, their four stages, the heads of pre-training, BatchNorm variants, detectors."""

from csml.light_imports import import_light

import_light("torchvision")  # before the modules below import it

from csml.models.backbones import FeatureNet, build_backbone, stage_maps  # noqa: E402
from csml.models.encoder import Encoder  # noqa: E402

__all__ = ["Encoder", "FeatureNet", "build_backbone", "stage_maps"]
