"""A folder in the layout of the Hugging Face hub: weights, a config, and code if no library has the network."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from csml.config import SMALL, BackboneConfig
from csml.files import atomic_write
from csml.models.backbones import Backbone, feature_channels, normalization
from csml.models.small_resnet import WIDTHS
from csml.weights.export.files import library_name, timm_options, write_tensors
from csml.weights.metadata import input_size

WEIGHTS, CONFIG, CODE = "model.safetensors", "config.json", "network.py"
_LATER_HEAD = "head.fc"
"""Name of the classifier in timm's Swin, ConvNeXt and RegNet."""


def to_huggingface(net: Backbone, network: BackboneConfig, facts: dict[str, Any], path: Path) -> str:
    """Write a folder: in timm's layout if timm has the network, else with a few lines of torch that build it."""
    path.mkdir(parents=True, exist_ok=True)
    if network.backbone in SMALL:
        write_tensors(net, facts, path / WEIGHTS)
        _write(path / CODE, Path(__file__).with_name("plain_resnet.py").read_text())
        _write_config(path, _small_config(net, network, facts))
        return (
            f"import sys\n"
            f"sys.path.insert(0, {str(path)!r})\n"
            f"from network import load  # needs torch and safetensors\n"
            f"net = load({str(path)!r})"
        )
    config = _timm_config(net, network, facts)
    write_tensors(net, facts, path / WEIGHTS, _no_classifier(config))
    _write_config(path, config)
    return f"import timm\nnet = timm.create_model({f'local-dir:{path}'!r}, pretrained=True, num_classes=0)"


def _small_config(net: Backbone, network: BackboneConfig, facts: dict[str, Any]) -> dict[str, Any]:
    return {
        "architecture": network.backbone,
        "widths": WIDTHS[network.backbone],
        "small_images": network.small_images,
        **_input(net, facts),
    }


def _timm_config(net: Any, network: BackboneConfig, facts: dict[str, Any]) -> dict[str, Any]:
    input = _input(net, facts)
    size = input.pop("size")
    sides = getattr(getattr(net, "patch_embed", None), "img_size", None)  # those of the position embedding
    known = getattr(net, "pretrained_cfg", {"first_conv": "conv1", "classifier": "fc"})
    classes = 1 if known["classifier"] == _LATER_HEAD else 0
    return {
        "architecture": library_name(network),
        "num_classes": classes,
        "num_features": feature_channels(net)[4],
        "model_args": timm_options(network) | ({} if sides is None else {"img_size": sides}),
        "pretrained_cfg": {
            "input_size": [3, size, size],
            **input,
            "interpolation": "bilinear",
            "num_classes": classes,
            "first_conv": known["first_conv"],
            "classifier": known["classifier"],
        },
    }


def _no_classifier(config: dict[str, Any]) -> dict[str, Tensor]:
    """A classifier of zeros for one class, if the network has one; timm drops it with `num_classes=0`.

    Without it timm would treat a Swin as a file from before 2023 and rename its weights.
    """
    if config["num_classes"] == 0:
        return {}
    channels = config["num_features"]
    return {f"{_LATER_HEAD}.weight": torch.zeros(1, channels), f"{_LATER_HEAD}.bias": torch.zeros(1)}


def _input(net: Backbone, facts: dict[str, Any]) -> dict[str, Any]:
    """Input size and normalisation of the network."""
    crop = facts.get("eval_crop", 0.875)
    return {"size": input_size(facts), "crop_pct": crop, **normalization(net)._asdict()}


def _write_config(path: Path, config: dict[str, Any]) -> None:
    _write(path / CONFIG, json.dumps(config, indent=2) + "\n")


def _write(path: Path, text: str) -> None:
    with atomic_write(path) as temporary:
        temporary.write_text(text)
