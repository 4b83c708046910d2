"""Detectors built on a backbone with torchvision's modules: Faster R-CNN C4, and Faster or Mask R-CNN with an FPN."""

from csml.models.detectors.build import build_detector
from csml.models.detectors.detector import Detection, Detector, Truth

__all__ = ["Detection", "Detector", "Truth", "build_detector"]
