"""A pickle for detectron2, the settings for identical results, and configs of its detectors."""

import pickle
from pathlib import Path
from typing import Any

import yaml

from csml.config import BackboneConfig, DetectConfig, Layer, configure, detect_preset, nest
from csml.files import atomic_write
from csml.models.backbones import Backbone, normalization
from csml.weights.export.files import library_name, plain_tensors

_DEPTHS = {
    "resnet18": 18, "resnet34": 34, "resnet50": 50, "resnet101": 101, "resnet152": 152, "resnext50_32x4d": 50,
    "resnext101_32x8d": 101, "resnext101_64x4d": 101, "wide_resnet50_2": 50, "wide_resnet101_2": 101,
}  # fmt: skip


def to_detectron2(net: Backbone, network: BackboneConfig, facts: dict[str, Any], path: Path) -> str:
    """Write a pickle under detectron2's names, and beside it the configs of a C4 and an FPN detector.

    Returns the settings that belong to the weights, for a user's own config.
    """
    model = {detectron2_name(key): value.numpy() for key, value in plain_tensors(net).items() if "tracked" not in key}
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        pickle.dump({"model": model, "__author__": "csml", "matching_heuristics": True}, file)
    settings = {"MODEL.WEIGHTS": str(path), **detectron2_settings(net, library_name(network))}
    written = []
    # detectron2's C4 always has bottlenecks in its last stage.
    bottlenecks = net.layer1[0].expansion > 1  # type: ignore[index,union-attr]
    for preset in ("voc-c4", "coco-fpn-1x") if bottlenecks else ("coco-fpn-1x",):
        beside = path.with_name(f"{path.stem}-{preset}.yaml")
        content = detectron2_config(configure(DetectConfig, Layer(detect_preset(preset), preset)), settings)
        with atomic_write(beside) as temporary:
            temporary.write_text(_HEAD.format(preset=preset) + yaml.safe_dump(content, sort_keys=False), "utf-8")
        written.append(beside.name)
    head = f"complete configs are {' and '.join(written)}; in one of your own, images being RGB from 0 to 255:\n"
    return head + "\n".join(f"{key}: {value}" for key, value in settings.items())


_HEAD = """\
# The paper's detector (csml detect --preset {preset}) in detectron2's words: all layers are tuned, and BatchNorm is
# that of all GPUs together. For data of your own set DATASETS and MODEL.ROI_HEADS.NUM_CLASSES, and shorten SOLVER.
# One thing differs: detectron2's head of a C4 has no norm after res5, csml's has one.
"""
_LEVELS = ["res2", "res3", "res4", "res5"]
_DATASETS = {
    "c4": (["voc_2007_trainval", "voc_2012_trainval"], ["voc_2007_test"], 20),
    "fpn": (["coco_2017_train"], ["coco_2017_val"], 80),
}
"""detectron2's names of the paper's training and test sets, and the number of classes."""


def detectron2_config(config: DetectConfig, settings: dict[str, Any]) -> dict[str, Any]:
    """A whole config of detectron2 for a detector of csml.

    Args:
        config: the detector, its images and its schedule.
        settings: those that belong to the weights, by dotted key.
    """
    detector, scenes, schedule = config.detector, config.scenes, config.schedule
    train, test, classes = _DATASETS[detector.kind]
    found = {
        "VERSION": 2,
        "MODEL.META_ARCHITECTURE": "GeneralizedRCNN",
        **settings,
        "MODEL.BACKBONE.FREEZE_AT": 0,
        "MODEL.RESNETS.NORM": "SyncBN",
        "MODEL.ANCHOR_GENERATOR.ASPECT_RATIOS": [list(detector.ratios)],
        "MODEL.RPN.POST_NMS_TOPK_TRAIN": detector.proposals,
        "MODEL.RPN.POST_NMS_TOPK_TEST": detector.proposals // 2,
        "MODEL.ROI_HEADS.NUM_CLASSES": classes,
        "MODEL.ROI_HEADS.BATCH_SIZE_PER_IMAGE": detector.rois,
        "MODEL.ROI_HEADS.SCORE_THRESH_TEST": detector.min_score,
        "MODEL.ROI_HEADS.NMS_THRESH_TEST": detector.nms,
        "DATASETS.TRAIN": train,
        "DATASETS.TEST": test,
        "INPUT.MIN_SIZE_TRAIN": list(scenes.short_sides),
        "INPUT.MIN_SIZE_TEST": scenes.test_side,
        "INPUT.MAX_SIZE_TRAIN": scenes.max_side,
        "INPUT.MAX_SIZE_TEST": scenes.max_side,
        "SOLVER.IMS_PER_BATCH": config.batch_size,
        "SOLVER.BASE_LR": schedule.lr_per_16 * config.batch_size / 16,
        "SOLVER.MAX_ITER": schedule.iterations,
        "SOLVER.STEPS": [round(part * schedule.iterations) for part in schedule.milestones],
        "SOLVER.WARMUP_ITERS": schedule.warmup,
        "SOLVER.WEIGHT_DECAY": schedule.weight_decay,
        "SOLVER.MOMENTUM": schedule.momentum,
        "TEST.DETECTIONS_PER_IMAGE": detector.max_detections,
    }
    return nest(found | (_c4(config) if detector.kind == "c4" else _fpn(config)))


def _c4(config: DetectConfig) -> dict[str, Any]:
    return {
        "MODEL.BACKBONE.NAME": "build_resnet_backbone",
        "MODEL.RESNETS.OUT_FEATURES": ["res4"],
        "MODEL.ANCHOR_GENERATOR.SIZES": [list(config.detector.anchors)],
        "MODEL.RPN.IN_FEATURES": ["res4"],
        "MODEL.RPN.PRE_NMS_TOPK_TRAIN": 6 * config.detector.proposals,
        "MODEL.RPN.PRE_NMS_TOPK_TEST": 3 * config.detector.proposals,
        "MODEL.ROI_HEADS.NAME": "Res5ROIHeads",
        "MODEL.ROI_HEADS.IN_FEATURES": ["res4"],
        "MODEL.ROI_BOX_HEAD.POOLER_RESOLUTION": config.detector.roi_side,
    }


def _fpn(config: DetectConfig) -> dict[str, Any]:
    detector, pyramid = config.detector, ["p2", "p3", "p4", "p5"]
    return {
        "MODEL.MASK_ON": True,
        "MODEL.BACKBONE.NAME": "build_resnet_fpn_backbone",
        "MODEL.RESNETS.OUT_FEATURES": _LEVELS,
        "MODEL.FPN.IN_FEATURES": [*_LEVELS],
        "MODEL.FPN.OUT_CHANNELS": detector.channels,
        "MODEL.FPN.NORM": "SyncBN",
        "MODEL.ANCHOR_GENERATOR.SIZES": [[side] for side in detector.anchors],
        "MODEL.RPN.IN_FEATURES": [*pyramid, "p6"],
        "MODEL.RPN.PRE_NMS_TOPK_TRAIN": detector.proposals,
        "MODEL.RPN.PRE_NMS_TOPK_TEST": detector.proposals // 2,
        "MODEL.ROI_HEADS.NAME": "StandardROIHeads",
        "MODEL.ROI_HEADS.IN_FEATURES": pyramid,
        "MODEL.ROI_BOX_HEAD.NAME": "FastRCNNConvFCHead",
        "MODEL.ROI_BOX_HEAD.NUM_FC": 2,
        "MODEL.ROI_BOX_HEAD.FC_DIM": detector.head_width,
        "MODEL.ROI_BOX_HEAD.POOLER_RESOLUTION": 7,
        "MODEL.ROI_MASK_HEAD.NAME": "MaskRCNNConvUpsampleHead",
        "MODEL.ROI_MASK_HEAD.NUM_CONV": 4,
        "MODEL.ROI_MASK_HEAD.CONV_DIM": detector.channels,
    }


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
    if block.expansion == 1:  # detectron2 requires it for basic blocks
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
