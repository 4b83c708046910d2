"""Frameworks: what is done with query and key views; know nothing of how they were made."""

from csml.methods.byol import Byol
from csml.methods.framework import Framework, StepResult
from csml.methods.momentum_contrast import MomentumContrast

__all__ = ["Byol", "Framework", "MomentumContrast", "StepResult"]
