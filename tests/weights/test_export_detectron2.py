"""The file for detectron2: its names, and that the settings printed with it make detectron2 compute what csml does."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import yaml
from torch import Tensor

from csml import load_backbone
from csml.api.exporting import export
from csml.config import BackboneConfig, ImagesConfig
from csml.models import build_backbone, stage_maps
from csml.pixels import MEAN, STD
from csml.weights import save_backbone
from csml.weights.export.detectron2 import detectron2_name, detectron2_settings

BLOCKS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}


@pytest.fixture(params=["resnet18", "resnet50", "resnext50_32x4d", "timm:resnet18"])
def exported(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[torch.nn.Module, dict[str, Any], dict[str, Any]]:
    """A network with statistics of its own, the weights in detectron2's file, and the settings printed with it."""
    torch.manual_seed(0)
    net = build_backbone(request.param)
    net(torch.randn(4, 3, 64, 64))
    save_backbone(tmp_path / "backbone.safetensors", net, BackboneConfig(request.param), ImagesConfig(size=64))
    path, how = export(tmp_path, "detectron2")
    with path.open("rb") as file:
        stored = pickle.load(file)
    assert stored["matching_heuristics"] is True
    settings = yaml.safe_load("\n".join(how.splitlines()[1:]))
    assert settings["MODEL.WEIGHTS"] == str(path)
    return load_backbone(tmp_path), stored["model"], settings


def conv(weights: dict[str, np.ndarray], name: str, x: Tensor, stride: int, groups: int = 1) -> Tensor:
    """A convolution of detectron2, whose norm is part of it."""
    get = {part: torch.from_numpy(weights.pop(f"{name}.{part}")) for part in ("weight", "norm.weight", "norm.bias")}
    mean, var = (torch.from_numpy(weights.pop(f"{name}.norm.running_{which}")) for which in ("mean", "var"))
    x = F.conv2d(x, get["weight"], stride=stride, padding=get["weight"].shape[-1] // 2, groups=groups)
    return F.batch_norm(x, mean, var, get["norm.weight"], get["norm.bias"])


def detectron2_stages(weights: dict[str, np.ndarray], settings: dict[str, Any], images: Tensor) -> dict[str, Tensor]:
    """What detectron2's R-CNN computes from RGB images in 0 … 255 with these settings, written down independently.

    Every weight is taken out of `weights`.
    """
    assert settings["INPUT.FORMAT"] == "RGB"
    mean, std = (torch.tensor(settings[f"MODEL.PIXEL_{name}"])[:, None, None] for name in ("MEAN", "STD"))
    x = conv(weights, "stem.conv1", (images - mean) / std, stride=2).relu()
    x = F.max_pool2d(x, 3, stride=2, padding=1)
    depth, groups = settings["MODEL.RESNETS.DEPTH"], settings.get("MODEL.RESNETS.NUM_GROUPS", 1)
    width = settings.get("MODEL.RESNETS.WIDTH_PER_GROUP", 64)
    outputs = settings.get("MODEL.RESNETS.RES2_OUT_CHANNELS", 256)
    in_first = settings["MODEL.RESNETS.STRIDE_IN_1X1"]
    assert depth >= 50 or outputs == 64  # detectron2 refuses other values
    stages = {}
    for stage, count in zip(range(2, 6), BLOCKS[depth], strict=True):
        for block in range(count):
            name, stride = f"res{stage}.{block}", 2 if block == 0 and stage > 2 else 1
            shortcut = conv(weights, f"{name}.shortcut", x, stride) if x.shape[1] != outputs * 2 ** (stage - 2) else x
            if depth < 50:
                y = conv(weights, f"{name}.conv2", conv(weights, f"{name}.conv1", x, stride).relu(), 1)
            else:
                assert weights[f"{name}.conv1.weight"].shape[0] == groups * width * 2 ** (stage - 2)
                y = conv(weights, f"{name}.conv1", x, stride if in_first else 1).relu()
                y = conv(weights, f"{name}.conv2", y, 1 if in_first else stride, groups).relu()
                y = conv(weights, f"{name}.conv3", y, 1)
            x = (y + shortcut).relu()
        stages[f"res{stage}"] = x
    return stages


def test_with_the_printed_settings_detectron2_uses_every_weight_and_computes_the_same_maps(
    exported: tuple[torch.nn.Module, dict[str, Any], dict[str, Any]],
) -> None:
    net, weights, settings = exported
    pixels = torch.randint(0, 256, (2, 3, 64, 64), generator=torch.Generator().manual_seed(0)).float()
    with torch.no_grad():
        theirs = detectron2_stages(weights, settings, pixels)
        normalised = (pixels / 255 - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]
        ours = stage_maps(net, normalised)
    for stage, fmap in ours.items():
        torch.testing.assert_close(theirs[f"res{stage + 1}"], fmap, atol=1e-4, rtol=1e-4)
    assert weights == {}


@pytest.mark.parametrize("name", ["resnet50", "resnet18"])
def test_whole_configs_are_written_beside_the_weights(name: str, tmp_path: Path) -> None:
    net = build_backbone(name)
    save_backbone(tmp_path / "backbone.safetensors", net, BackboneConfig(name), ImagesConfig(size=64))
    path, how = export(tmp_path, "detectron2")
    fpn, c4 = (path.with_name(f"{path.stem}-{preset}.yaml") for preset in ("coco-fpn-1x", "voc-c4"))
    assert fpn.name in how and c4.exists() == (c4.name in how) == (name == "resnet50")  # a C4 ends in bottlenecks
    for file in (fpn, c4) if name == "resnet50" else (fpn,):
        config = yaml.safe_load(file.read_text())
        model = config["MODEL"]
        assert model["WEIGHTS"] == str(path) and model["RESNETS"]["DEPTH"] == int(name.removeprefix("resnet"))
        assert model["RESNETS"]["STRIDE_IN_1X1"] is False and config["INPUT"]["FORMAT"] == "RGB"
        assert model["PIXEL_MEAN"][0] > 100 and model["BACKBONE"]["FREEZE_AT"] == 0
    assert yaml.safe_load(fpn.read_text())["SOLVER"]["STEPS"] == [60_000, 80_000]
    if name == "resnet50":
        config = yaml.safe_load(c4.read_text())
        assert config["SOLVER"]["MAX_ITER"] == 24_000 and config["SOLVER"]["STEPS"] == [18_000, 22_000]
        assert config["MODEL"]["ROI_HEADS"]["NAME"] == "Res5ROIHeads"


def test_detectron2_itself_accepts_the_configs_and_the_weights(tmp_path: Path) -> None:
    """Where it is installed; it has no wheel."""
    configs = pytest.importorskip("detectron2.config")
    building, checkpoints = (pytest.importorskip(f"detectron2.{name}") for name in ("modeling", "checkpoint"))
    save_backbone(
        tmp_path / "backbone.safetensors", build_backbone("resnet50"), BackboneConfig("resnet50"), ImagesConfig()
    )
    path, _ = export(tmp_path, "detectron2")
    for file in path.parent.glob("*.yaml"):
        config = configs.get_cfg()
        config.merge_from_file(str(file))
        config.MODEL.DEVICE = "cpu"
        model = building.build_model(config)
        missing = checkpoints.DetectionCheckpointer(model).load(config.MODEL.WEIGHTS)["missing_keys"]
        assert not [key for key in missing if "bottom_up" in key or "res" in key]


def test_names_of_detectron2() -> None:
    assert detectron2_name("conv1.weight") == "stem.conv1.weight"
    assert detectron2_name("bn1.running_mean") == "stem.conv1.norm.running_mean"
    assert detectron2_name("layer4.2.conv3.weight") == "res5.2.conv3.weight"
    assert detectron2_name("layer2.0.bn2.bias") == "res3.0.conv2.norm.bias"
    assert detectron2_name("layer1.0.downsample.0.weight") == "res2.0.shortcut.weight"


@pytest.mark.parametrize(
    ("name", "depth", "groups", "width"),
    [("resnext101_32x8d", 101, 32, 8), ("resnext101_64x4d", 101, 64, 4), ("wide_resnet101_2", 101, 1, 128)],
)
def test_settings_of_large_networks(name: str, depth: int, groups: int, width: int) -> None:
    with torch.device("meta"):
        settings = detectron2_settings(build_backbone(name), name)
    assert settings["MODEL.RESNETS.DEPTH"] == depth
    assert settings["MODEL.RESNETS.NUM_GROUPS"] == groups
    assert settings["MODEL.RESNETS.WIDTH_PER_GROUP"] == width
    assert settings["MODEL.PIXEL_MEAN"] == [123.675, 116.28, 103.53]
    assert settings["MODEL.PIXEL_STD"] == [58.395, 57.12, 57.375]
