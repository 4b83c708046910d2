"""Sheets of annotated images: ground truth, and beside it the detections."""

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from csml.data.scenes import Scenes
from csml.data.scenes.annotations import decode_masks
from csml.evaluation.detections import SceneDetections
from csml.sheets.objects import draw_objects

_TILE, _GAP, _CAPTION = 256, 8, 18


def detection_sheet(
    scenes: Scenes, found: list[tuple[int, SceneDetections]], min_score: float, pairs_per_row: int = 2, why: str = ""
) -> Image.Image:
    """Pairs of pictures: annotated objects, and detections; a caption above each column.

    Args:
        scenes: the test images.
        found: ids of images and their detections.
        min_score: smallest score of a detection that is shown.
        pairs_per_row: pairs in a row of the sheet.
        why: how `min_score` was chosen, for the caption.
    """
    pairs = [(_truth(scenes, id), _found(scenes, id, detection, min_score)) for id, detection in found]
    per_row = min(pairs_per_row, max(1, len(pairs)))
    rows = [[p for pair in pairs[start : start + per_row] for p in pair] for start in range(0, len(pairs), per_row)]
    chosen = f"score at least {min_score:.2f}" + (f", {why}" if why else "")
    return _sheet(rows, ["annotated", f"detected ({chosen})"] * per_row, gap_after=2)


def scene_sheet(scenes: Scenes, ids: Sequence[int], per_row: int = 5) -> Image.Image:
    """Images with their annotations."""
    pictures = [_truth(scenes, id) for id in ids]
    rows = [pictures[start : start + per_row] for start in range(0, len(pictures), per_row)]
    return _sheet(rows, [], gap_after=per_row)


def _sheet(rows: list[list[Image.Image]], captions: list[str], gap_after: int) -> Image.Image:
    """Rows of pictures below their captions; a wider gap follows every `gap_after` columns."""
    columns = max((len(row) for row in rows), default=1)
    lefts = [_GAP + column * (_TILE + _GAP) + column // gap_after * _GAP for column in range(columns)]
    heights = [max(picture.height for picture in row) + _GAP for row in rows]
    top = _GAP + (_CAPTION if captions else 0)
    sheet = Image.new("RGB", (lefts[-1] + _TILE + _GAP, sum(heights) + top), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(size=12)
    for left, caption in zip(lefts, captions, strict=False):
        draw.text((left, _GAP / 2), caption, fill="black", font=font)
    for row, height in zip(rows, heights, strict=True):
        for left, picture in zip(lefts, row, strict=False):
            sheet.paste(picture, (left, top))
        top += height
    return sheet


def _truth(scenes: Scenes, id: int) -> Image.Image:
    objects = scenes.annotations.objects(id)
    size = tuple(scenes.annotations.sizes[id].tolist())
    has = [mask is not None for mask in objects.masks]
    masks = np.zeros((len(has), *size), np.uint8)
    masks[np.array(has, dtype=bool)] = decode_masks([mask for mask in objects.masks if mask is not None], size)
    names = [scenes.classes[label] for label in objects.labels.tolist()]
    picture = scenes.images.read(id)
    return draw_objects(picture, objects.boxes, objects.labels, names, masks, len(scenes.classes), _TILE)


def _found(scenes: Scenes, id: int, found: SceneDetections, min_score: float) -> Image.Image:
    return draw_found(scenes.images.read(id), found, scenes.classes, min_score, _TILE)


def draw_found(
    picture: Image.Image, found: SceneDetections, classes: Sequence[str], min_score: float, tile: int | None = None
) -> Image.Image:
    """The picture with the detections of at least `min_score` on it."""
    shown = np.flatnonzero(found.scores >= min_score)
    labels, scores = found.labels[shown], found.scores[shown].tolist()
    names = [f"{classes[label]} {score:.2f}" for label, score in zip(labels.tolist(), scores, strict=True)]
    size = (picture.height, picture.width)
    masks = None if found.masks is None else decode_masks([found.masks[row] for row in shown], size)
    return draw_objects(picture, found.boxes[shown], labels, names, masks, len(classes), tile)
