"""What a table says about a classifier."""

from typing import Any

import torch
from torch import Tensor


def accuracy(scores: Tensor, labels: Tensor, classes: tuple[str, ...]) -> dict[str, Any]:
    """Top-1, top-5 and per-class accuracy of scores `(Q, classes)` against labels `(Q,)`.

    Top-5 is top-n where there are only n < 5 classes; a class without a test image is None.
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
    """How many test images of each class (row) were taken for each class (column)."""
    pairs = labels * classes + scores.argmax(dim=1)  # (Q,)
    return torch.bincount(pairs, minlength=classes * classes).view(classes, classes).tolist()


def entropy(probabilities: Tensor) -> Tensor:
    """`(Q, classes)` → `(Q,)`, in nats: 0 for certainty, log(classes) for none at all."""
    return torch.special.entr(probabilities).sum(dim=1)
