"""A sheet of test images: annotated objects on the left, detections on the right, with boxes, masks and scores."""

import colorsys

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from csml.data.scenes import Scenes
from csml.data.scenes.annotations import decode_masks
from csml.evaluation.detections import Found

_TILE, _GAP = 256, 8
_MASK_OPACITY = 0.45


def detection_sheet(
    scenes: Scenes, found: list[tuple[int, Found]], min_score: float, pairs_per_row: int = 2
) -> Image.Image:
    """Pairs of pictures: annotated objects, and detections.

    Args:
        scenes: the test images.
        found: ids of images and their detections.
        min_score: smallest score of a detection that is shown.
        pairs_per_row: pairs in a row of the sheet.
    """
    pairs = [(_truth(scenes, id), _found(scenes, id, detection, min_score)) for id, detection in found]
    rows = [pairs[start : start + pairs_per_row] for start in range(0, len(pairs), pairs_per_row)]
    heights = [max(picture.height for pair in row for picture in pair) + _GAP for row in rows]
    step = _TILE + _GAP
    sheet = Image.new("RGB", (pairs_per_row * (2 * step + _GAP), sum(heights) + _GAP), "white")
    top = _GAP
    for row, height in zip(rows, heights, strict=True):
        for column, pair in enumerate(row):
            for place, picture in enumerate(pair):
                sheet.paste(picture, (column * (2 * step + _GAP) + _GAP + place * step, top))
        top += height
    return sheet


def _truth(scenes: Scenes, id: int) -> Image.Image:
    objects = scenes.annotations.objects(id)
    size = tuple(scenes.annotations.sizes[id].tolist())
    has = [mask is not None for mask in objects.masks]
    masks = np.zeros((len(has), *size), np.uint8)
    masks[np.array(has, dtype=bool)] = decode_masks([mask for mask in objects.masks if mask is not None], size)
    names = [scenes.classes[label] for label in objects.labels.tolist()]
    return _drawn(scenes.images.read(id), objects.boxes, objects.labels, names, masks, len(scenes.classes))


def _found(scenes: Scenes, id: int, found: Found, min_score: float) -> Image.Image:
    shown = np.flatnonzero(found.scores >= min_score)
    labels, scores = found.labels[shown], found.scores[shown].tolist()
    names = [f"{scenes.classes[label]} {score:.2f}" for label, score in zip(labels.tolist(), scores, strict=True)]
    size = tuple(scenes.annotations.sizes[id].tolist())
    masks = None if found.masks is None else decode_masks([found.masks[row] for row in shown], size)
    return _drawn(scenes.images.read(id), found.boxes[shown], labels, names, masks, len(scenes.classes))


def _drawn(
    picture: Image.Image,
    boxes: np.ndarray,
    labels: np.ndarray,
    names: list[str],
    masks: np.ndarray | None,
    classes: int,
) -> Image.Image:
    """The picture scaled to a tile, with objects drawn on it."""
    colours = [_colour(label, classes) for label in labels.tolist()]
    if masks is not None and len(masks):
        pixels = np.asarray(picture).astype(np.float32)
        for mask, colour in zip(masks.astype(bool), colours, strict=True):
            pixels[mask] = (1 - _MASK_OPACITY) * pixels[mask] + _MASK_OPACITY * np.array(colour)
        picture = Image.fromarray(pixels.astype(np.uint8))
    scale = _TILE / max(picture.size)
    picture = picture.resize((max(1, round(picture.width * scale)), max(1, round(picture.height * scale))))
    draw, font = ImageDraw.Draw(picture), ImageFont.load_default(size=11)
    for box, colour, name in zip((boxes * scale).tolist(), colours, names, strict=True):
        draw.rectangle(box, outline=colour, width=2)
        at = (box[0] + 1, max(0.0, box[1] - 13))
        draw.rectangle(draw.textbbox(at, name, font=font), fill=colour)
        draw.text(at, name, fill="black", font=font)
    return picture


def _colour(label: int, classes: int) -> tuple[int, int, int]:
    r, g, b = colorsys.hsv_to_rgb(label / max(1, classes), 0.65, 1.0)
    return round(255 * r), round(255 * g), round(255 * b)
