"""Weight files for torchvision, timm and csml itself."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from csml.config import TIMM, BackboneConfig
from csml.files import atomic_write
from csml.models.backbones import Backbone
from csml.models.timm_networks import any_size_options


def to_torchvision(net: Backbone, network: BackboneConfig, facts: dict[str, Any], path: Path) -> str:
    """Write a torch file for torchvision."""
    with atomic_write(path) as temporary:
        torch.save(plain_tensors(net), temporary)
    return _stem_note(network) + (
        f"import torch, torchvision\n"
        f"net = torchvision.models.{library_name(network)}(weights=None)\n"
        f"net.fc = torch.nn.Identity()\n"
        f"{_stem_code(network)}"
        f"net.load_state_dict(torch.load({str(path)!r}, weights_only=True))"
    )


def to_timm(net: Backbone, network: BackboneConfig, facts: dict[str, Any], path: Path) -> str:
    """Write a safetensors file for timm."""
    write_tensors(net, facts, path)
    options = "".join(f", {key}={value}" for key, value in timm_options(network).items())
    return _stem_note(network) + (
        f"import timm, torch\n"
        f"from safetensors.torch import load_file\n"
        f"net = timm.create_model({library_name(network)!r}, num_classes=0{options})\n"
        f"{_stem_code(network)}"
        f"net.load_state_dict(load_file({str(path)!r}))"
    )


def to_safetensors(net: Backbone, network: BackboneConfig, facts: dict[str, Any], path: Path) -> str:
    """Write a safetensors file for csml."""
    write_tensors(net, facts, path)
    return f"import csml\nnet = csml.load_backbone({str(path)!r})"


def write_tensors(net: Backbone, facts: dict[str, Any], path: Path, more: dict[str, Tensor] | None = None) -> None:
    """Write the weights, and `more`, with their metadata; csml can read every file that it exports."""
    with atomic_write(path) as temporary:
        save_file(plain_tensors(net) | (more or {}), temporary, metadata={"format": "pt", "csml": json.dumps(facts)})


def plain_tensors(net: Backbone) -> dict[str, Tensor]:
    """The weights by name."""
    return {name: value.detach().contiguous() for name, value in net.state_dict().items()}


def library_name(network: BackboneConfig) -> str:
    """The name of the network in torchvision or timm; valid as part of a file name."""
    return network.backbone.removeprefix(TIMM)


def timm_options(network: BackboneConfig) -> dict[str, Any]:
    """The arguments with which timm builds the network for images of any size."""
    return any_size_options(library_name(network)) if network.backbone.startswith(TIMM) else {}


def _stem_note(network: BackboneConfig) -> str:
    return "# trained with model.small_images: a 3×3 first convolution, no max-pool\n" if network.small_images else ""


def _stem_code(network: BackboneConfig) -> str:
    if not network.small_images:
        return ""
    return "net.conv1 = torch.nn.Conv2d(3, 64, 3, padding=1, bias=False); net.maxpool = torch.nn.Identity()\n"
