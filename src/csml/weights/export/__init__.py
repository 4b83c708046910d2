"""Exporting a network, without the heads of pre-training, to the names and file formats of other libraries."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from csml.config import SMALL, TIMM, TORCHVISION, BackboneConfig
from csml.errors import CsmlError
from csml.models.backbones import image_channels
from csml.weights.export.detectron2 import to_detectron2
from csml.weights.export.files import to_safetensors, to_timm, to_torchvision
from csml.weights.export.folder import to_huggingface
from csml.weights.export.onnx_file import to_onnx

Format = Callable[[nn.Module, BackboneConfig, dict[str, Any], Path], str]
FORMATS: dict[str, Format] = {
    "torchvision": to_torchvision,
    "timm": to_timm,
    "detectron2": to_detectron2,
    "onnx": to_onnx,
    "safetensors": to_safetensors,
    "huggingface": to_huggingface,
}
SUFFIXES = {
    "torchvision": ".pth", "timm": ".safetensors", "detectron2": ".pkl", "onnx": ".onnx", "safetensors": ".safetensors",
    "huggingface": "",
}  # fmt: skip


def export(net: nn.Module, network: BackboneConfig, facts: dict[str, Any], format: str, path: Path) -> str:
    """Write a network in one of FORMATS.

    Args:
        net: a backbone; or a classifier, as ONNX only.
        network: its architecture.
        facts: metadata about its input, as returned by `weight_facts`; empty for weights of other trainers.
        format: one of FORMATS.
        path: file or folder to write.

    Returns:
        The lines of Python, or of a config, that load it.
    """
    if format not in FORMATS:
        raise CsmlError(f"to: {format!r} is unknown; choose one of {', '.join(FORMATS)}")
    check_format(network, format)
    channels = image_channels(net)
    if channels != 3 and format not in ("onnx", "safetensors"):
        raise CsmlError(f"to: {format} expects images of 3 channels, not {channels}; choose onnx or safetensors")
    facts = {**facts, "backbone": network.backbone, "small_images": network.small_images}
    return FORMATS[format](net.cpu().eval(), network, facts, path)


def check_format(network: BackboneConfig, format: str) -> None:
    """Raise a CsmlError if the format cannot hold the network; it names those that can."""
    able = formats_of(network)
    if format in able:
        return
    if network.small_images:
        problem = f"{format} expects the 7×7 first convolution, not model.small_images"
    elif network.backbone in SMALL:
        problem = f"{format} has no network {network.backbone}, which exists only in csml"
    else:
        problem = f"{format} has no network {network.backbone} with these names of weights"
    raise CsmlError(f"to: {problem}; choose {', '.join(able[:-1])} or {able[-1]}")


def formats_of(network: BackboneConfig) -> list[str]:
    """The formats that can hold the network."""
    of_torchvision = network.backbone.removeprefix(TIMM) in TORCHVISION  # timm's ResNets use the same weight names
    able = {
        "torchvision": of_torchvision,
        "timm": of_torchvision or network.backbone.startswith(TIMM),
        "detectron2": of_torchvision and not network.small_images,
        "onnx": True,
        "safetensors": True,
        "huggingface": network.backbone in SMALL or not network.small_images,
    }
    return [format for format, yes in able.items() if yes]
