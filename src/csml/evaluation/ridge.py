"""Ridge regression: leave-one-out predictions of each label from all others, without fitting N times."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from csml.search.nearest_neighbors import SMALL

PENALTIES = (1e-1, 1e-2, 1e-3)
"""Candidate penalties, relative to the mean eigenvalue of the covariance times the number of dimensions."""


def leave_one_out(features: Tensor, labels: Tensor, classes: int, penalties: Sequence[float] = PENALTIES) -> Tensor:
    """Scores of each image by a linear classifier fitted to all other images.

    Ridge regression on one-hot labels. Leaving a row out changes its residual by the factor 1 / (1 − h), where h is the
    leverage of the row, so that one decomposition suffices for all rows.

    Args:
        features: `(N, C)`, whose float64 covariance `(C, C)` is computed block by block.
        labels: `(N,)` int64, 0 … classes − 1.
        classes: K.
        penalties: candidates; the best leave-one-out accuracy wins.

    Returns:
        `(N, K)` float32.
    """
    count = len(features)
    mean = sum((block.double().sum(dim=0) for block in features.split(SMALL)), torch.zeros(())) / count  # (C,)
    shares = labels.bincount(minlength=classes).double() / count  # (K,)
    covariance = torch.zeros(features.shape[1], features.shape[1], dtype=torch.double)
    products = torch.zeros(features.shape[1], classes, dtype=torch.double)
    for block, own in zip(features.split(SMALL), labels.split(SMALL), strict=True):
        centred = block.double() - mean
        covariance += centred.T @ centred
        products += centred.T @ (F.one_hot(own, classes) - shares)
    variances, directions = torch.linalg.eigh(covariance)  # (C,), (C, C)
    products = directions.T @ products
    best, most = torch.zeros(0), -1.0
    for penalty in penalties:
        shrunk = 1 / (variances.clamp(min=0) + penalty * float(variances.clamp(min=0).sum()) + 1e-12)  # (C,)
        scores = torch.empty(count, classes)
        for start in range(0, count, SMALL):
            rows = slice(start, start + SMALL)
            coordinates = (features[rows].double() - mean) @ directions  # (n, C)
            leverage = (coordinates.square() @ shrunk)[:, None] + 1 / count  # 1 / N is the leverage of the intercept
            fitted = (coordinates * shrunk) @ products
            truth = F.one_hot(labels[rows], classes) - shares
            scores[rows] = (truth - (truth - fitted) / (1 - leverage).clamp(min=1e-6) + shares).float()
        right = float((scores.argmax(dim=1) == labels).double().mean())
        if right > most:
            best, most = scores, right
    return best
