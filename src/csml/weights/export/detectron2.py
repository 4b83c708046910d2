"""A pickle for detectron2, and the settings with which detectron2 computes what csml computes."""

import pickle
from pathlib import Path
from typing import Any

from csml.config import BackboneConfig
from csml.files import atomic_write
from csml.models.backbones import Backbone, normalization
from csml.weights.export.files import library_name, plain_tensors

_DEPTHS = {
    "resnet18": 18, "resnet34": 34, "resnet50": 50, "resnet101": 101, "resnet152": 152, "resnext50_32x4d": 50,
    "resnext101_32x8d": 101, "resnext101_64x4d": 101, "wide_resnet50_2": 50, "wide_resnet101_2": 101,
}  # fmt: skip


def to_detectron2(net: Backbone, network: BackboneConfig, facts: dict[str, Any], path: Path) -> str:
    """Write a pickle under detectron2's names; returns the lines of a config that belong to it."""
    model = {detectron2_name(key): value.numpy() for key, value in plain_tensors(net).items() if "tracked" not in key}
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        pickle.dump({"model": model, "__author__": "csml", "matching_heuristics": True}, file)
    settings = {"MODEL.WEIGHTS": path, **detectron2_settings(net, library_name(network))}
    head = "in detectron2's config; its images are RGB from 0 to 255, which PIXEL_MEAN and PIXEL_STD normalise:\n"
    return head + "\n".join(f"{key}: {value}" for key, value in settings.items())


def detectron2_settings(net: Any, name: str) -> dict[str, Any]:
    """Settings of detectron2's `build_resnet_backbone`, and of its input, for torchvision's network `name`."""
    mean, std = normalization(net)
    block = net.layer1[0]
    groups = block.conv2.groups
    settings = {
        "MODEL.PIXEL_MEAN": [round(255 * value, 3) for value in mean],
        "MODEL.PIXEL_STD": [round(255 * value, 3) for value in std],
        "MODEL.RESNETS.DEPTH": _DEPTHS[name],
        "MODEL.RESNETS.STRIDE_IN_1X1": False,
        "INPUT.FORMAT": "RGB",
    }
    width = block.conv2.out_channels // groups
    if block.expansion == 1:  # detectron2 asks for it if its blocks are basic ones
        settings["MODEL.RESNETS.RES2_OUT_CHANNELS"] = width
    elif (groups, width) != (1, 64):  # ResNeXt and wide networks
        settings |= {"MODEL.RESNETS.NUM_GROUPS": groups, "MODEL.RESNETS.WIDTH_PER_GROUP": width}
    return settings


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
