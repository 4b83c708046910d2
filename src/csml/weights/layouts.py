"""Finds the backbone in the checkpoints of other trainers, under torchvision's or timm's names."""

import re
from typing import Any

import torch
from torch import Tensor

from csml.config import BACKBONES, TIMM
from csml.light_imports import import_light
from csml.models.backbones import build_backbone

_AVERAGED = re.compile(r"momentum|encoder_k|key_|teacher|target|ema|offline", re.IGNORECASE)
"""Matches the prefix of a momentum encoder. The trained network is preferred over it, as in MoCo's own conversion."""
_SEQUENTIAL = {"0.": "conv1.", "1.": "bn1.", "4.": "layer1.", "5.": "layer2.", "6.": "layer3.", "7.": "layer4."}
"""Names of a ResNet's children in an nn.Sequential, as in lightly's examples."""


_TIMM_FAMILIES = {
    "patch_embed.proj.weight blocks.0.attn.qkv.weight": [
        f"vit_{size}_patch{patch}"
        for size in ("tiny", "small", "base", "large")
        for patch in ("16_224", "8_224", "14_dinov2", "14_reg4_dinov2", "16_dinov3")
    ],
    "conv_stem.weight blocks.0.0.conv_dw.weight": [
        *(f"tf_efficientnet_lite{size}" for size in range(5)),
        *(f"efficientnet_b{size}" for size in range(5)),
        *(f"mobilenetv3_{size}_100" for size in ("small", "large")),
        "mobilenetv2_100",
    ],
    "stem.0.weight stages.0.blocks.0.conv_dw.weight": [
        f"{family}_{size}"
        for family in ("convnext", "convnextv2")
        for size in ("atto", "femto", "pico", "nano", "tiny", "small", "base", "large")
    ],
    "patch_embed.proj.weight layers.0.blocks.0.attn.qkv.weight": [
        f"swin_{size}_patch4_window7_224" for size in ("tiny", "small", "base", "large")
    ],
    "stem.conv.weight s1.b1.conv1.conv.weight": [
        f"regnet{kind}_{size}" for kind in "xy" for size in ("002", "004", "006", "008", "016", "032")
    ],
}
"""Two weights that identify a family of timm, and its common members."""


def backbone_tensors(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The network in a checkpoint, for any prefix of its names: a ResNet under torchvision's names, any other under
    timm's; empty if there is none."""
    found = torchvision_names(tensors)
    for family in () if found else _TIMM_FAMILIES:
        if prefixes := _prefixes(tensors, *family.split()):
            return _under(tensors, prefixes[0])
    return found


def tensors_named(tensors: dict[str, Tensor], names: list[str]) -> dict[str, Tensor]:
    """The network whose weights have these names in this order, for any prefix; empty if there is none."""
    prefixes = _prefixes(tensors, names[0], names[-1])
    return _under(tensors, prefixes[0]) if prefixes else {}


def torchvision_names(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Extract the network from a checkpoint of torchvision, timm, MoCo, SwAV, SimSiam, BYOL, DINO, VISSL, solo-learn,
    lightly or a similar trainer, for any prefix of its names; empty if there is none."""
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
    """The name of the backbone whose stages have these names and shapes; a ResNet's first convolution and classifiers
    are not compared."""
    for family, names in _TIMM_FAMILIES.items():
        if set(family.split()) <= set(tensors):
            return next((f"{TIMM}{name}" for name in names if _fits_timm(name, tensors)), None)
    shapes = _shapes(tensors)
    for name in BACKBONES:
        with torch.device("meta"):
            expected = _shapes(build_backbone(name).state_dict())
        if expected == shapes:
            return name
    return None


def _fits_timm(name: str, tensors: dict[str, Tensor]) -> bool:
    import_light("timm")
    import timm

    if not timm.is_model(name):  # an older timm
        return False
    with torch.device("meta"):
        net: Any = build_backbone(f"{TIMM}{name}")
    wanted, classifier = net.state_dict(), net.pretrained_cfg["classifier"]
    counters = "num_batches_tracked"
    if any(_is_more(key, wanted, classifier) for key in tensors if key not in wanted and not key.endswith(counters)):
        return False
    return all(
        key in tensors and tensors[key].shape == value.shape
        for key, value in wanted.items()
        if not key.endswith(counters)
    )


def _is_more(key: str, wanted: dict[str, Tensor], classifier: str | tuple[str, ...]) -> bool:
    """Whether a weight is inside a part of the network that has no such weight, so that it belongs to a larger network.

    For example, EfficientNet-B0 has every weight of EfficientNet-Lite0, and attention over channels as well. Weights
    outside the network, such as heads, do not count; tokens, which have no dot in their names, do.
    """
    heads = (classifier,) if isinstance(classifier, str) else classifier
    if key.startswith(tuple(f"{head}." for head in heads)):
        return False
    part = key.partition(".")[0]
    return (part == key and part != "mask_token") or part in {name.partition(".")[0] for name in wanted}


def _shapes(tensors: dict[str, Tensor]) -> dict[str, torch.Size]:
    # Old checkpoints lack the counter num_batches_tracked.
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
