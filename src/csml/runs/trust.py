"""Reliability of a classifier: its accuracy in cross-validation, and features of its labelled images for comparison."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from csml.errors import CsmlError, reason
from csml.files import atomic_write

_MOST = 2000
"""Largest number of labelled images kept for comparison."""
_UNLIKE = 0.05
"""Share of the labelled images that may be less similar to the others than the threshold for familiar images."""


@dataclass(frozen=True)
class Trust:
    """What `csml predict` needs to report how reliable its predictions are."""

    features: Tensor
    """`(M, C)`, float16, of labelled images, unit length"""
    floor: float
    """An image whose most similar labelled image has a lower cosine is unfamiliar."""
    labels: int
    """number of training labels of the classifier"""
    accuracy: float | None
    """expected accuracy on images like the labelled ones, by cross-validation; None: too few labels"""
    error: float | None
    """standard error of the accuracy"""

    def similarities(self, features: Tensor) -> Tensor:
        """Cosine of each of the features `(B, C)` with the most similar labelled image, `(B,)`."""
        unit = torch.nn.functional.normalize(features.float())
        return (unit @ self.features.to(features.device).float().T).amax(1)


def trust_in(features: Tensor, seed: int, accuracy: float | None, error: float | None) -> Trust:
    """From the features `(N, C)` of all labelled images; if there are many, a random sample is kept."""
    chosen = torch.randperm(len(features), generator=torch.Generator().manual_seed(seed))[:_MOST]
    kept = torch.nn.functional.normalize(features.float())[chosen.sort().values]
    cosines = (kept @ kept.T).fill_diagonal_(-1).amax(1)  # (M,): with the most similar other one
    return Trust(kept.half(), float(cosines.quantile(_UNLIKE)), len(features), accuracy, error)


def save_trust(path: Path, trust: Trust) -> None:
    """Write the file beside the classifier."""
    facts = {"floor": trust.floor, "labels": trust.labels, "accuracy": trust.accuracy, "error": trust.error}
    with atomic_write(path) as temporary:
        save_file({"features": trust.features.contiguous()}, temporary, metadata={"csml": json.dumps(facts)})


def read_trust(path: Path) -> Trust | None:
    """Read the file; None if there is none, because the classifier was not calibrated."""
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as opened:
            return Trust(opened.get_tensor("features"), **json.loads(opened.metadata()["csml"]))
    except Exception as error:
        raise CsmlError(f"{path} cannot be read ({reason(error)}); delete it to predict without it") from error
