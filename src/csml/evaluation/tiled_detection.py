"""Detections on pictures in memory: whole, or cut into overlapping tiles whose detections are merged."""

from collections.abc import Sequence

import numpy as np
import torch
from lightning_fabric import Fabric
from PIL import Image

from csml.data.scenes.annotations import Rle, decode_masks, encode_masks
from csml.evaluation.detections import SceneDetections, to_scene_detections
from csml.models.detectors import Detector
from csml.pixels import resized

_OVERLAP = 0.25
"""Overlap of neighbouring tiles as a share of their side: an object of this size is complete on one of them."""
_AT_BORDER = 2.0
"""Distance in pixels from an inner border of a tile within which an object counts as cut off."""
_SAME = 0.6
"""Two boxes of a class are the same object if at least this share of the smaller one is inside the other."""


@torch.no_grad()
def detect_on(
    detector: Detector, pictures: Sequence[Image.Image], sides: tuple[int, int], fabric: Fabric
) -> list[SceneDetections]:
    """The detections on each picture, in its pixels.

    Args:
        detector: in eval mode.
        pictures: RGB.
        sides: shorter and longest side to which pictures are resized.
        fabric: device and precision.
    """
    images = []
    for picture in pictures:
        height, width = resized((picture.height, picture.width), *sides)
        pixels = np.array(picture.resize((width, height), Image.Resampling.BILINEAR))
        images.append(torch.from_numpy(pixels).permute(2, 0, 1).contiguous().to(fabric.device))
    with fabric.autocast():
        detections, sizes, _ = detector.run_network(images)
    rows = zip(detections, sizes, pictures, strict=True)
    return [to_scene_detections(detector, one, size, (picture.height, picture.width)) for one, size, picture in rows]


def detect_in_tiles(
    detector: Detector, picture: Image.Image, side: int, sides: tuple[int, int], fabric: Fabric, batch_size: int
) -> SceneDetections:
    """The merged detections on the tiles of a picture.

    Args:
        detector: in eval mode.
        picture: RGB, of any size.
        side: side of a tile in pixels of the picture.
        sides: shorter and longest side to which a tile is resized.
        fabric: device and precision.
        batch_size: tiles per batch.
    """
    places = tile_places((picture.height, picture.width), side)
    found: list[SceneDetections] = []
    for start in range(0, len(places), batch_size):
        some = places[start : start + batch_size]
        tiles = [picture.crop((left, top, right, bottom)) for left, top, right, bottom in some]
        found += detect_on(detector, tiles, sides, fabric)
    return merge(found, places, (picture.height, picture.width))


def tile_places(size: tuple[int, int], side: int) -> list[tuple[int, int, int, int]]:
    """Corners left, top, right, bottom of tiles that cover an image of `size` (height, width) evenly."""
    starts = []
    for length in size:
        tile = min(side, length)
        count = 1 if length <= side else int(np.ceil((length - tile) / (tile * (1 - _OVERLAP)))) + 1
        starts.append(np.linspace(0, length - tile, count).round().astype(int).tolist())
    height, width = (min(side, length) for length in size)
    return [(x, y, x + width, y + height) for y in starts[0] for x in starts[1]]


def merge(
    found: Sequence[SceneDetections], places: Sequence[tuple[int, int, int, int]], size: tuple[int, int]
) -> SceneDetections:
    """The detections of all tiles in pixels of the image of `size` (height, width), each object once.

    Of detections that share most of their area, one that is not cut off by a tile wins, then the higher score.
    """
    boxes, cut, masks = [], [], []
    for one, (left, top, right, bottom) in zip(found, places, strict=True):
        moved = one.boxes + np.array([left, top, left, top], dtype=np.float32)
        inner = np.array([left > 0, top > 0, right < size[1], bottom < size[0]])
        near = np.abs(moved - np.array([left, top, right, bottom])) < _AT_BORDER
        boxes.append(moved)
        cut.append((near & inner).any(axis=1))
        masks += [] if one.masks is None else [(mask, (left, top)) for mask in one.masks]
    labels, scores = (np.concatenate([getattr(one, name) for one in found]) for name in ("labels", "scores"))
    all_boxes, all_cut = np.concatenate(boxes), np.concatenate(cut)
    kept: list[int] = []
    for row in np.lexsort((-scores, all_cut)).tolist():
        rivals = [other for other in kept if labels[other] == labels[row]]
        if not rivals or _inside(all_boxes[row], all_boxes[rivals]).max() < _SAME:
            kept.append(row)
    kept.sort(key=lambda row: -scores[row])
    codes = None if not found or found[0].masks is None else [_moved(*masks[row], size) for row in kept]
    return SceneDetections(all_boxes[kept], labels[kept], scores[kept], codes)


def _inside(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Intersection over the area of the smaller box, `(R,)`."""
    shared = np.clip(np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2]), 0, None).prod(axis=1)
    areas = np.clip(others[:, 2:] - others[:, :2], 0, None).prod(axis=1)
    own = np.clip(box[2:] - box[:2], 0, None).prod()
    return np.asarray(shared / np.maximum(np.minimum(areas, own), 1e-6))


def _moved(mask: Rle, corner: tuple[int, int], size: tuple[int, int]) -> Rle:
    """The mask of a tile as one of the whole image."""
    tile = decode_masks([mask], tuple(mask["size"]))[0]
    whole = np.zeros(size, np.uint8)
    left, top = corner
    whole[top : top + tile.shape[0], left : left + tile.shape[1]] = tile
    return encode_masks(whole[None])[0]
