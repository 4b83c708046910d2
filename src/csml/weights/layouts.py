"""Finds the backbone in the checkpoints of other trainers and translates its names to torchvision's."""

import re

import torch
from torch import Tensor

from csml.config import BACKBONES
from csml.models.backbones import build_backbone

_AVERAGED = re.compile(r"momentum|encoder_k|key_|teacher|target|ema|offline", re.IGNORECASE)
"""Matches the prefix of a momentum encoder. The trained network is preferred over it, as in MoCo's own conversion."""
_SEQUENTIAL = {"0.": "conv1.", "1.": "bn1.", "4.": "layer1.", "5.": "layer2.", "6.": "layer3.", "7.": "layer4."}
"""Names of a ResNet's children in an nn.Sequential, as in lightly's examples."""


def torchvision_names(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Extract the network from a checkpoint of torchvision, timm, MoCo, SwAV, SimSiam, BYOL, DINO, VISSL, solo-learn,
    lightly or a similar trainer, whatever the prefix of its names; empty if there is none."""
    plain = _prefixes(tensors, "conv1.weight", "layer4.0.conv1.weight")
    if plain:
        return _under(tensors, plain[0])
    numbered = _prefixes(tensors, "0.weight", "7.0.conv1.weight")
    if not numbered:
        return {}
    inside = _under(tensors, numbered[0])
    pairs = [(old, new, key) for key in inside for old, new in _SEQUENTIAL.items() if key.startswith(old)]
    return {new + key[len(old) :]: inside[key] for old, new, key in pairs}


def recognise(tensors: dict[str, Tensor]) -> str | None:
    """The name of the backbone whose stages have these names and shapes; the first convolution is not compared."""
    shapes = _shapes(tensors)
    for name in BACKBONES:
        with torch.device("meta"):
            expected = _shapes(build_backbone(name).state_dict())
        if expected == shapes:
            return name
    return None


def _shapes(tensors: dict[str, Tensor]) -> dict[str, torch.Size]:
    # Old checkpoints do not have the counter num_batches_tracked.
    return {
        key: value.shape
        for key, value in tensors.items()
        if key.startswith("layer") and not key.endswith("num_batches_tracked")
    }


def _prefixes(tensors: dict[str, Tensor], first: str, last: str) -> list[str]:
    """Prefixes under which both names exist; trained networks before momentum encoders, then short before long."""
    found = [key[: -len(first)] for key in tensors if key.endswith(first)]
    found = [prefix for prefix in found if (not prefix or prefix.endswith(".")) and prefix + last in tensors]
    return sorted(found, key=lambda prefix: (bool(_AVERAGED.search(prefix)), len(prefix), prefix))


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {key[len(prefix) :]: value for key, value in tensors.items() if key.startswith(prefix)}
