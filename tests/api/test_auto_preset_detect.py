"""`csml detect --preset auto`: settings that follow the boxes, and warnings where they do not."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.ops import box_iou

from csml.api.auto_preset_detect import best_overlap, choose_preset, disagreements
from csml.api.detecting import detect_config, open_data
from csml.config import HardwareConfig
from csml.data.scenes import Annotations, Objects
from scene_layouts import LAYOUTS


def truth_with(boxes: np.ndarray, per_image: int = 1, side: int = 400) -> Annotations:
    """Images of `side` with boxes of the given widths and heights `(T, 2)`."""
    objects = []
    for start in range(0, len(boxes), per_image):
        some = boxes[start : start + per_image]
        corners = np.concatenate([np.zeros_like(some), some], axis=1).astype(np.float32)
        none = np.zeros(len(some), bool)
        objects.append(Objects(corners, np.zeros(len(some), np.int64), none, none, [None] * len(some)))
    return Annotations.pack([(side, side)] * len(objects), objects)


def test_the_overlap_with_anchors_is_that_of_torchvisions_anchors() -> None:
    boxes = np.random.default_rng(0).uniform(5, 90, (30, 2))
    anchors = AnchorGenerator(((16, 40),), ((0.5, 1.0, 2.0),)).generate_anchors((16, 40), (0.5, 1.0, 2.0))
    centred = torch.from_numpy(np.concatenate([-boxes / 2, boxes / 2], axis=1)).float()
    expected = box_iou(centred, anchors).max(dim=1).values.numpy()
    np.testing.assert_allclose(best_overlap(boxes, (16, 40), (0.5, 1.0, 2.0)), expected, atol=1e-5)


@pytest.mark.parametrize("typical", [0.04, 0.2, 0.8])
@pytest.mark.parametrize("ratio", [0.4, 1.0, 3.0])
def test_fitted_settings_reach_nearly_all_boxes(typical: float, ratio: float) -> None:
    rng = np.random.default_rng(0)
    sides = 400 * np.minimum(0.95, typical * np.exp(rng.normal(0, 0.3, 200)))
    shape = np.exp(rng.normal(np.log(ratio), 0.15, 200))
    truth = truth_with(np.stack([sides / np.sqrt(shape), sides * np.sqrt(shape)], axis=1))
    choice = choose_preset(truth, HardwareConfig())
    config = detect_config("random", preset=choice.preset, **choice.settings)
    assert not disagreements(config, truth)


def test_large_boxes_are_out_of_reach_of_a_small_preset_and_this_is_said() -> None:
    truth = truth_with(np.random.default_rng(0).uniform(250, 390, (50, 2)))
    (warning,) = disagreements(detect_config("random", preset="small-c4"), truth)
    assert "100% of the boxes are out of reach of the anchors" in warning and "try --preset auto" in warning


def test_small_and_crowded_boxes_are_said_and_followed() -> None:
    truth = truth_with(np.full((300, 2), 12.0), per_image=150)
    warnings = disagreements(
        detect_config("random", preset="small-fpn", **{"detector.anchors": [4, 5, 6, 7, 8]}), truth
    )
    assert any("less than 6 pixels at this image size" in line for line in warnings)
    assert any("an image has 150 objects, and detector.max_detections is 100" in line for line in warnings)
    settings = choose_preset(truth, HardwareConfig()).settings
    assert settings["scenes.test_side"] > 160 and settings["detector.max_detections"] == 225


def test_a_gpu_counts_unless_the_user_asks_for_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    LAYOUTS["cards"].write(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    sides = {
        accelerator: detect_config(
            "random", data=str(tmp_path), hardware={"accelerator": accelerator}
        ).scenes.short_sides
        for accelerator in ("auto", "cpu")
    }
    assert {accelerator: len(found) for accelerator, found in sides.items()} == {"auto": 3, "cpu": 1}


def test_auto_is_the_default_of_a_folder_and_every_choice_can_be_overridden(tmp_path: Path) -> None:
    LAYOUTS["cards"].write(tmp_path)
    chosen = detect_config("random", data=str(tmp_path))
    assert chosen.detector.anchors == tuple(
        choose_preset(open_data(chosen).train.annotations, HardwareConfig()).settings["detector.anchors"]
    )
    mine = detect_config("random", data=str(tmp_path), preset="auto", **{"schedule.iterations": 7})
    assert mine.schedule.iterations == 7 and mine.detector.anchors == chosen.detector.anchors
    assert detect_config("random", data=str(tmp_path), preset="voc-c4").schedule.iterations == 24_000
