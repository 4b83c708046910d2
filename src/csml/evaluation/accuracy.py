"""Accuracy, confusion matrix and entropy of class predictions."""

from typing import Any

import torch
from torch import Tensor


def accuracy(scores: Tensor, labels: Tensor, classes: tuple[str, ...]) -> dict[str, Any]:
    """Top-1, top-5 and per-class accuracy of scores `(Q, classes)` against labels `(Q,)`.

    With n < 5 classes, "top5" is the top-n accuracy. A class without test images has None.
    """
    ranked = scores.topk(min(5, len(classes)), dim=1).indices == labels[:, None]  # (Q, 5)
    right = ranked[:, 0].float()
    return {
        "top1": float(right.mean()),
        "top5": float(ranked.any(1).float().mean()),
        "per_class": {
            name: float(right[labels == label].mean()) if (labels == label).any() else None
            for label, name in enumerate(classes)
        },
    }


def confusion(scores: Tensor, labels: Tensor, classes: int) -> list[list[int]]:
    """Confusion matrix: test images of each true class (row) by predicted class (column)."""
    pairs = labels * classes + scores.argmax(dim=1)  # (Q,)
    return torch.bincount(pairs, minlength=classes * classes).view(classes, classes).tolist()


def entropy(probabilities: Tensor) -> Tensor:
    """Entropy of `(Q, classes)` in nats, `(Q,)`: from 0 (certain) to log(classes) (uniform)."""
    return torch.special.entr(probabilities).sum(dim=1)
