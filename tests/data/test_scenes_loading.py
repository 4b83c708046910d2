"""Scenes resized and flipped with what is on them; who is in which batch."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchvision.transforms.v2 import functional as F
from torchvision.tv_tensors import BoundingBoxes, BoundingBoxFormat

from csml.config import ScenesConfig
from csml.data.scenes.annotations import Scenes, decode_masks
from csml.data.scenes.loading import ScenePlan, as_input, plans_in_order, scene_batches
from csml.data.scenes.sampling import grouped_batches, training_plans
from csml.data.scenes.synthetic import synthetic_scenes
from csml.pixels import resized


@pytest.fixture(scope="module")
def scenes() -> Scenes:
    train, _ = synthetic_scenes(64, 8, 2)
    return train


def read(scenes: Scenes, side: int, flip: bool):
    plan = ScenePlan(np.array([3]), np.array([side]), np.array([flip]))
    (batch,) = scene_batches(scenes, [plan], max_side=1000, masks=True, workers=0)
    return as_input(batch, torch.device("cpu"))


def test_a_scene_as_it_is(scenes: Scenes) -> None:
    ((image,), (target,)), objects = read(scenes, 64, flip=False), scenes.annotations.objects(3)
    assert torch.equal(image, torch.from_numpy(np.array(scenes.images.read(3))).permute(2, 0, 1))
    assert np.array_equal(target["boxes"], objects.boxes)
    assert target["labels"].tolist() == (objects.labels + 1).tolist()
    assert np.array_equal(target["masks"], decode_masks([m for m in objects.masks if m], (64, 64)))


@pytest.mark.parametrize("side", [96, 37])
def test_boxes_and_masks_follow_a_flip_and_a_resize_as_in_torchvision(scenes: Scenes, side: int) -> None:
    ((image,), (target,)), objects = read(scenes, side, flip=True), scenes.annotations.objects(3)
    boxes = BoundingBoxes(torch.from_numpy(objects.boxes), format=BoundingBoxFormat.XYXY, canvas_size=(64, 64))
    expected = F.horizontal_flip(F.resize(boxes, [side, side]))
    torch.testing.assert_close(target["boxes"], torch.Tensor(expected), rtol=0, atol=1e-4)
    masks = torch.from_numpy(decode_masks([m for m in objects.masks if m], (64, 64)))
    resized_masks = torch.nn.functional.interpolate(masks[:, None].float(), (side, side), mode="nearest-exact")[:, 0]
    assert torch.equal(target["masks"].float(), resized_masks.flip(-1))
    picture = F.horizontal_flip(
        F.resize(torch.from_numpy(np.array(scenes.images.read(3))).permute(2, 0, 1), [side, side])
    )
    assert (image.int() - picture.int()).abs().max() <= 2


@given(st.integers(1, 4000), st.integers(1, 4000), st.integers(32, 800))
def test_the_short_side_is_the_one_asked_for_unless_the_long_would_be_too_long(
    height: int, width: int, side: int
) -> None:
    new = resized((height, width), side, 1333)
    assert max(new) <= 1333
    assert min(new) == side or max(new) == 1333


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.integers(1, 8), st.integers(0, 1000))
def test_batches_are_of_one_shape_and_every_scene_comes_once_a_pass(wide: list[bool], batch: int, seed: int) -> None:
    shapes = np.array(wide)
    counts = np.zeros(len(wide), int)
    for ids in itertools.islice(grouped_batches(shapes, batch, seed), 60):
        assert len(ids) == batch
        assert len(set(shapes[ids].tolist())) == 1
        counts[ids[0]] += 0
        np.add.at(counts, ids, 1)
    for shape in (True, False):  # within a shape, nobody is more than the rest of one pass ahead
        seen = counts[shapes == shape]
        assert len(seen) == 0 or seen.max() - seen.min() <= 1 + batch // len(seen)


def test_plans_can_be_taken_up_anywhere() -> None:
    sizes = np.array([[40, 60], [60, 40], [50, 50], [40, 60], [30, 60]])
    config = ScenesConfig(short_sides=(64, 96, 128))
    whole = list(itertools.islice(training_plans(sizes, config, 2, seed=5, start=0), 12))
    rest = list(itertools.islice(training_plans(sizes, config, 2, seed=5, start=7), 5))
    for a, b in zip(whole[7:], rest, strict=True):
        assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
    assert {side for plan in whole for side in plan.sides.tolist()} == {64, 96, 128}
    assert {flip for plan in whole for flip in plan.flips.tolist()} == {True, False}


def test_tests_look_at_every_scene_once(scenes: Scenes) -> None:
    plans = plans_in_order(len(scenes), 3, 64)
    assert np.concatenate([plan.ids for plan in plans]).tolist() == list(range(8))
    assert not any(plan.flips.any() for plan in plans)
