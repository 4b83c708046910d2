"""Frameworks: what is done with query and key views; knows nothing of how they were made."""

from csml.methods.momentum_contrast import MomentumContrast, StepResult

__all__ = ["MomentumContrast", "StepResult"]
