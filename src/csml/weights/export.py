"""Exporting a backbone, without the heads of pre-training, to the names and file formats of other libraries."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from csml.config import TORCHVISION, BackboneConfig
from csml.errors import CsmlError
from csml.extras import extra
from csml.files import atomic_write
from csml.models.backbones import Backbone, feature_channels
from csml.pixels import MEAN, STD


def export(backbone: Backbone, network: BackboneConfig, facts: dict[str, Any], format: str, path: Path) -> str:
    """Write `backbone` in one of FORMATS and return the lines of Python that load it."""
    if format not in FORMATS:
        raise CsmlError(f"to: {format!r} is unknown; choose one of {', '.join(FORMATS)}")
    return FORMATS[format](backbone.cpu().eval(), network, facts, path)


def _torchvision(backbone: Backbone, network: BackboneConfig, facts: dict[str, Any], path: Path) -> str:
    _only_known(network, "torchvision")
    with atomic_write(path) as temporary:
        torch.save(_plain(backbone), temporary)
    return _stem_note(network) + (
        f"import torch, torchvision\n"
        f"net = torchvision.models.{network.backbone}(weights=None)\n"
        f"net.fc = torch.nn.Identity()\n"
        f"{_stem_code(network)}"
        f"net.load_state_dict(torch.load({str(path)!r}, weights_only=True))"
    )


def _timm(backbone: Backbone, network: BackboneConfig, facts: dict[str, Any], path: Path) -> str:
    _only_known(network, "timm")
    with atomic_write(path) as temporary:
        save_file(_plain(backbone), temporary)
    return _stem_note(network) + (
        f"import timm, torch\n"
        f"from safetensors.torch import load_file\n"
        f"net = timm.create_model({network.backbone!r}, num_classes=0)\n"
        f"{_stem_code(network)}"
        f"net.load_state_dict(load_file({str(path)!r}))"
    )


def _safetensors(backbone: Backbone, network: BackboneConfig, facts: dict[str, Any], path: Path) -> str:
    with atomic_write(path) as temporary:
        save_file(_plain(backbone), temporary, metadata={"csml": json.dumps(facts)} if facts else None)
    return f"import csml\nnet = csml.load_backbone({str(path)!r})"


def _onnx(backbone: Backbone, network: BackboneConfig, facts: dict[str, Any], path: Path) -> str:
    with extra("onnx", "to: onnx"):
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    size = facts.get("size", 224)
    batch = torch.export.Dim("batch", min=1)
    with atomic_write(path) as temporary:
        torch.onnx.export(
            backbone,
            (torch.zeros(2, 3, size, size),),
            str(temporary),
            input_names=["images"],
            output_names=["features"],
            dynamic_shapes=({0: batch},),
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    return (
        f"import onnxruntime\n"
        f"net = onnxruntime.InferenceSession({str(path)!r})\n"
        f'features = net.run(None, {{"images": images}})[0]  # (B, 3, {size}, {size}) float32 → (B, C)'
    )


def _detectron2(backbone: Backbone, network: BackboneConfig, facts: dict[str, Any], path: Path) -> str:
    _only_known(network, "detectron2")
    _only_usual_stem(network, "detectron2")
    model = {detectron2_name(key): value.numpy() for key, value in _plain(backbone).items() if "tracked" not in key}
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        pickle.dump({"model": model, "__author__": "csml", "matching_heuristics": True}, file)
    return (
        f"in detectron2's config, with images as RGB in [0, 1], normalised:\n"
        f"MODEL.WEIGHTS: {path}\n"
        f"MODEL.PIXEL_MEAN: [123.675, 116.280, 103.530]\n"
        f"MODEL.PIXEL_STD: [58.395, 57.120, 57.375]\n"
        f"MODEL.RESNETS.STRIDE_IN_1X1: False\n"
        f"INPUT.FORMAT: RGB"
    )


def detectron2_name(key: str) -> str:
    """Convert torchvision's name to detectron2's: `layer1.0.bn2.weight` → `res2.0.conv2.norm.weight`."""
    if not key.startswith("layer"):
        return "stem." + key.replace("bn1.", "conv1.norm.")
    stage, block, *rest = key.removeprefix("layer").split(".")
    name = ".".join(rest)
    name = name.replace("downsample.0", "shortcut").replace("downsample.1", "shortcut.norm")
    for number in "123":
        name = name.replace(f"bn{number}.", f"conv{number}.norm.")
    return f"res{int(stage) + 1}.{block}.{name}"


def _huggingface(backbone: Backbone, network: BackboneConfig, facts: dict[str, Any], path: Path) -> str:
    """Write a folder in the layout that timm uses on the Hugging Face hub."""
    _only_known(network, "huggingface")
    _only_usual_stem(network, "huggingface")
    size, crop = facts.get("size", 224), facts.get("eval_crop", 0.875)
    pretrained = {
        "input_size": [3, size, size],
        "mean": facts.get("mean", MEAN),
        "std": facts.get("std", STD),
        "crop_pct": crop,
        "interpolation": "bilinear",
        "num_classes": 0,
        "first_conv": "conv1",
        "classifier": "fc",
    }
    config = {
        "architecture": network.backbone,
        "num_classes": 0,
        "num_features": feature_channels(backbone)[4],
        "pretrained_cfg": pretrained,
    }
    path.mkdir(parents=True, exist_ok=True)
    with atomic_write(path / "model.safetensors") as temporary:
        save_file(_plain(backbone), temporary, metadata={"format": "pt"})
    with atomic_write(path / "config.json") as temporary:
        temporary.write_text(json.dumps(config, indent=2) + "\n")
    return f"import timm\nnet = timm.create_model({f'local-dir:{path}'!r}, pretrained=True, num_classes=0)"


Format = Callable[[Backbone, BackboneConfig, dict[str, Any], Path], str]
FORMATS: dict[str, Format] = {
    "torchvision": _torchvision,
    "timm": _timm,
    "detectron2": _detectron2,
    "onnx": _onnx,
    "safetensors": _safetensors,
    "huggingface": _huggingface,
}
SUFFIXES = {
    "torchvision": ".pth", "timm": ".safetensors", "detectron2": ".pkl", "onnx": ".onnx", "safetensors": ".safetensors",
    "huggingface": "",
}  # fmt: skip


def _plain(backbone: Backbone) -> dict[str, Tensor]:
    return {name: value.detach().contiguous() for name, value in backbone.state_dict().items()}


def _only_known(network: BackboneConfig, library: str) -> None:
    if network.backbone not in TORCHVISION:
        raise CsmlError(
            f"to: {library} has no network {network.backbone}, which exists only in csml; export it as safetensors or "
            "onnx, or train a torchvision network such as resnet18"
        )


def _only_usual_stem(network: BackboneConfig, library: str) -> None:
    if network.small_images:
        raise CsmlError(
            f"to: {library} expects the 7×7 first convolution, not model.small_images; use safetensors or onnx"
        )


def _stem_note(network: BackboneConfig) -> str:
    return "# trained with model.small_images: a 3×3 first convolution, no max-pool\n" if network.small_images else ""


def _stem_code(network: BackboneConfig) -> str:
    if not network.small_images:
        return ""
    return "net.conv1 = torch.nn.Conv2d(3, 64, 3, padding=1, bias=False); net.maxpool = torch.nn.Identity()\n"
