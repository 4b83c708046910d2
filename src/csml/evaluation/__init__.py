"""Features, predictions, detections, and the scores computed from them (docs/method.md#evaluation)."""

from csml.evaluation.features import Features, extract_features
from csml.evaluation.knn import knn_predict

__all__ = ["Features", "extract_features", "knn_predict"]
