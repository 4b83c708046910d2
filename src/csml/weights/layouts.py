"""Whose checkpoint it is: the network's weights under torchvision's names, out of what trainers wrap around them."""

import re

import torch
from torch import Tensor

from csml.models.backbones import BACKBONES, build_backbone

_FOLLOWER = re.compile(r"momentum|encoder_k|key_|teacher|target|ema|offline", re.IGNORECASE)
"""In the name of an averaged copy: the network that learnt is preferred, as in MoCo's own conversion."""
_SEQUENTIAL = {"0.": "conv1.", "1.": "bn1.", "4.": "layer1.", "5.": "layer2.", "6.": "layer3.", "7.": "layer4."}
"""Children of a ResNet put into an nn.Sequential, as lightly's examples do."""


def torchvision_names(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The network inside a checkpoint of torchvision, timm, MoCo, SwAV, SimSiam, BYOL, DINO, VISSL, solo-learn,
    lightly and their like, whatever its prefix; empty if there is none."""
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
    """The backbone whose layers have these names and shapes, the first convolution aside."""
    ours = _shapes(tensors)
    for name in BACKBONES:
        with torch.device("meta"):
            theirs = _shapes(build_backbone(name).state_dict())
        if theirs == ours:
            return name
    return None


def _shapes(tensors: dict[str, Tensor]) -> dict[str, torch.Size]:
    # Old checkpoints do not count batches.
    return {
        key: value.shape
        for key, value in tensors.items()
        if key.startswith("layer") and not key.endswith("num_batches_tracked")
    }


def _prefixes(tensors: dict[str, Tensor], first: str, last: str) -> list[str]:
    """What stands before both names; networks that learnt before averaged copies, short before long."""
    found = [key[: -len(first)] for key in tensors if key.endswith(first)]
    found = [prefix for prefix in found if (not prefix or prefix.endswith(".")) and prefix + last in tensors]
    return sorted(found, key=lambda prefix: (bool(_FOLLOWER.search(prefix)), len(prefix), prefix))


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {key[len(prefix) :]: value for key, value in tensors.items() if key.startswith(prefix)}
