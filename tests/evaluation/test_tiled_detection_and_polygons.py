"""Detections merged from tiles, and masks as polygons."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pycocotools import mask as rle

from csml.data.scenes.annotations import decode_masks, encode_masks
from csml.evaluation.detections import SceneDetections
from csml.evaluation.polygons import outlines
from csml.evaluation.tiled_detection import merge, tile_places


@given(st.integers(1, 900), st.integers(1, 900), st.integers(32, 400))
def test_tiles_cover_every_pixel_and_overlap(height: int, width: int, side: int) -> None:
    seen = np.zeros((height, width), bool)
    places = tile_places((height, width), side)
    for left, top, right, bottom in places:
        assert 0 <= left < right <= width and 0 <= top < bottom <= height
        assert right - left <= side and bottom - top <= side
        seen[top:bottom, left:right] = True
    assert seen.all()
    lefts = sorted({place[0] for place in places})
    assert all(b - a <= np.ceil(0.75 * side) for a, b in itertools.pairwise(lefts))


def on_tile(place: tuple[int, int, int, int], box: tuple[int, int, int, int], score: float) -> SceneDetections:
    """What a perfect detector sees of a box on a tile."""
    left, top, right, bottom = place
    x0, y0, x1, y1 = max(box[0], left), max(box[1], top), min(box[2], right), min(box[3], bottom)
    if x0 >= x1 or y0 >= y1:
        return SceneDetections(np.zeros((0, 4), np.float32), np.zeros(0, np.int64), np.zeros(0, np.float32), [])
    mask = np.zeros((1, bottom - top, right - left), np.uint8)
    mask[0, y0 - top : y1 - top, x0 - left : x1 - left] = 1
    corners = np.array([[x0 - left, y0 - top, x1 - left, y1 - top]], dtype=np.float32)
    return SceneDetections(corners, np.zeros(1, np.int64), np.array([score], np.float32), encode_masks(mask))


@pytest.mark.parametrize("box", [(10, 10, 40, 30), (80, 60, 105, 90), (70, 10, 90, 40), (150, 90, 200, 120)])
def test_an_object_on_several_tiles_is_one_object_and_whole(box: tuple[int, int, int, int]) -> None:
    size = (120, 200)
    places = tile_places(size, 100)
    found = [on_tile(place, box, score=0.9 - 0.01 * number) for number, place in enumerate(places)]
    merged = merge(found, places, size)
    assert merged.boxes.tolist() == [list(map(float, box))]
    assert merged.masks is not None
    (mask,) = decode_masks(merged.masks, size)
    expected = np.zeros(size, np.uint8)
    expected[box[1] : box[3], box[0] : box[2]] = 1
    assert np.array_equal(mask, expected)


def test_two_objects_side_by_side_stay_two() -> None:
    places = tile_places((100, 100), 100)
    boxes = np.array([[0, 0, 40, 40], [30, 0, 70, 40]], dtype=np.float32)
    merged = merge([SceneDetections(boxes, np.zeros(2, np.int64), np.array([0.9, 0.8]), None)], places, (100, 100))
    assert len(merged.boxes) == 2 and merged.masks is None


@given(st.integers(0, 2**31), st.floats(0.2, 0.9))
def test_polygons_cover_the_mask_they_outline(seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    mask = np.kron(rng.random((5, 6)) < share, np.ones((8, 8))).astype(np.uint8)
    polygons = outlines(mask)
    if not mask.any():
        assert polygons == []
        return
    drawn = rle.decode(rle.merge(rle.frPyObjects(polygons, *mask.shape)))
    assert (drawn[mask > 0] == 1).mean() > 0.97  # COCO leaves out some pixels of a border
    filled = (drawn > 0) & (mask == 0)
    assert filled.sum() <= (mask == 0).sum()


def test_a_rectangle_has_four_corners() -> None:
    mask = np.zeros((10, 12), np.uint8)
    mask[2:5, 3:9] = 1
    (polygon,) = outlines(mask)
    corners = {tuple(polygon[i : i + 2]) for i in range(0, len(polygon), 2)}
    assert corners == {(3, 2), (9, 2), (9, 5), (3, 5)} and len(polygon) == 8
