"""Detectors: an epoch and a test of ours against torchvision's Faster R-CNN in the loop of its reference scripts."""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.transforms.v2 import functional as F

from benchmarks.figure import Figure
from benchmarks.timing import alternate
from benchmarks.trainers import epoch_of
from csml.api.detecting import detect_config
from csml.data.failures import Failures
from csml.data.loading import fabric_for
from csml.data.scenes import Scenes
from csml.data.scenes.synthetic import synthetic_scenes
from csml.evaluation.detection_test import DetectionTest
from csml.evaluation.detections import detect
from csml.models.backbones import build_backbone
from csml.models.detectors import build_detector
from csml.runs.directory import RunDirectory
from csml.training.detection import Detection
from csml.training.loop import TrainingLoop

SIDE, IMAGES, BATCH = 160, 64, 8
ANCHORS = (8, 16, 32, 48, 64)


def against_torchvision(images: int = IMAGES, rounds: int = 3) -> list[Figure]:
    """Faster R-CNN with an FPN over a ResNet-18, 160 px, batch 8, the same drawn scenes in memory for both."""
    scenes, _ = synthetic_scenes(SIDE, images, 1)
    ours = _ours(scenes)
    theirs = _theirs(len(scenes.classes) + 1)
    loader = DataLoader(_Pictures(scenes), BATCH, shuffle=True, collate_fn=_listed)
    sides: dict[str, Callable[[], Any]] = {
        "training": epoch_of(ours),
        "training, torchvision": partial(_train_one_epoch, theirs, loader),
        "predict": partial(_search, ours, scenes),
        "predict, torchvision": partial(_predict, theirs, loader),
    }
    timing = alternate(sides, rounds)
    figures = []
    for what in ("training", "predict"):
        rates = {side: len(scenes) / timing.median(side) for side in (what, f"{what}, torchvision")}
        detail = f"{rates[what]:.1f} against {rates[f'{what}, torchvision']:.1f} images/s"
        ratio = timing.ratio(f"{what}, torchvision", what)
        figures.append(
            Figure(f"detector, {what}, against torchvision's reference loop", ratio, "≥ 1.0", detail, timing.facts())
        )
    return figures


def _ours(scenes: Scenes) -> TrainingLoop:
    settings: dict[str, Any] = {
        "model.backbone": "resnet18", "detector.masks": False, "detector.channels": 256, "detector.head_width": 1024,
        "batch_size": BATCH, "schedule.iterations": len(scenes) // BATCH, "schedule.report_every": len(scenes) // BATCH,
        "hardware.precision": "32-true", "monitor.tensorboard": False, "detector.anchors": ANCHORS,
        # Else ours would leave a core to whoever needs it, and torchvision's loop would then run with that number.
        "hardware.threads": torch.get_num_threads(),
    }  # fmt: skip
    config = detect_config("random", preset="small-fpn", **settings)
    fabric = fabric_for(scenes.images, 0, config.hardware)
    detector = build_detector(build_backbone("resnet18"), config.detector, len(scenes.classes), masks=False)
    test = DetectionTest(scenes, "synthetic", config.scenes, BATCH, False, "all", fabric)
    run = RunDirectory(Path(tempfile.mkdtemp()))
    return TrainingLoop(Detection(config, detector, scenes, False, test, run, fabric), config, run, fabric)


def _search(loop: TrainingLoop, scenes: Scenes) -> None:
    task = loop.task
    assert isinstance(task, Detection)
    for _ in detect(task.network, scenes, task.config.scenes, BATCH, task.fabric, Failures(scenes.images, 1.0)):
        pass


class _Pictures(Dataset[Any]):
    """Images and targets as torchvision's reference scripts have them: decoded by Pillow, in [0, 1], maybe flipped."""

    def __init__(self, scenes: Scenes) -> None:
        self.scenes = scenes

    def __len__(self) -> int:
        return len(self.scenes)

    def __getitem__(self, id: int) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        image = F.to_dtype(F.pil_to_tensor(self.scenes.images.read(id)), torch.float32, scale=True)
        objects = self.scenes.annotations.objects(id)
        boxes = objects.boxes.copy()
        if np.random.default_rng(id).random() < 0.5:
            image, boxes = image.flip(-1), boxes[:, [2, 1, 0, 3]]
            boxes[:, [0, 2]] = image.shape[-1] - boxes[:, [0, 2]]
        return image, {"boxes": torch.from_numpy(boxes), "labels": torch.from_numpy(objects.labels + 1)}


def _listed(batch: Any) -> tuple[Any, ...]:
    return tuple(zip(*batch, strict=True))


def _theirs(classes: int) -> FasterRCNN:
    backbone = resnet_fpn_backbone(
        backbone_name="resnet18", weights=None, norm_layer=torch.nn.BatchNorm2d, trainable_layers=5
    )
    return FasterRCNN(
        backbone, classes, min_size=SIDE, max_size=2 * SIDE,
        rpn_anchor_generator=AnchorGenerator(tuple((side,) for side in ANCHORS), ((0.5, 1.0, 2.0),) * 5),
        rpn_pre_nms_top_n_train=200, rpn_post_nms_top_n_train=200, rpn_pre_nms_top_n_test=100,
        rpn_post_nms_top_n_test=100, box_batch_size_per_image=64,
    )  # fmt: skip


def _train_one_epoch(model: FasterRCNN, loader: DataLoader[Any]) -> None:
    """The steps of `references/detection/engine.py`, without its logging."""
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    for images, targets in loader:
        losses = sum(model(list(images), list(targets)).values())
        optimizer.zero_grad()
        losses.backward()
        optimizer.step()


@torch.inference_mode()
def _predict(model: FasterRCNN, loader: DataLoader[Any]) -> None:
    model.eval()
    for images, _ in loader:
        model(list(images))
