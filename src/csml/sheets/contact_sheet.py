"""A sheet of anchors and their nearest neighbours; frames mark equal and different labels."""

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

from csml.data.images import UNLABELED, Images

_GAP = 4
_RIGHT, _WRONG, _ANCHOR = (60, 160, 90), (200, 60, 50), (120, 120, 120)


def neighbor_sheet(
    images: Images, neighbors: np.ndarray, anchors: np.ndarray, columns: int = 8, tile: int = 56
) -> Image.Image:
    """One row per anchor: the anchor in a grey frame, then its neighbours, green for the same label, red for another.

    Args:
        images: the data set.
        neighbors: `(N, k)` ids, best first.
        anchors: `(R,)` ids, one row each.
        columns: neighbours shown, at most k.
        tile: side of a picture in pixels.
    """
    columns = min(columns, neighbors.shape[1])
    rows = [[anchor, *neighbors[anchor, :columns].tolist()] for anchor in anchors.tolist()]
    frames = [[_frame_colour(images, row[0], id, is_anchor=place == 0) for place, id in enumerate(row)] for row in rows]
    return sheet([[images.read(id) for id in row] for row in rows], frames, tile)


def sheet(
    rows: list[list[Image.Image]], frames: list[list[tuple[int, int, int]]] | None = None, tile: int = 56
) -> Image.Image:
    """Rows of pictures in frames of the given colours, grey by default; a gap follows the first of each row."""
    step = tile + 3 * _GAP
    drawn = Image.new("RGB", (max(map(len, rows)) * step + 2 * _GAP, len(rows) * step), "white")
    draw = ImageDraw.Draw(drawn)
    for row, pictures in enumerate(rows):
        for column, picture in enumerate(pictures):
            left = column * step + _GAP + (2 * _GAP if column else 0)
            top = row * step + _GAP
            frame = frames[row][column] if frames else _ANCHOR
            draw.rectangle([left, top, left + tile + 2 * _GAP - 1, top + tile + 2 * _GAP - 1], fill=frame)
            drawn.paste(picture.resize((tile, tile), Image.Resampling.LANCZOS), (left + _GAP, top + _GAP))
    return drawn


def titled_sheet(rows: list[tuple[str, list[Image.Image]]], tile: int = 96) -> Image.Image:
    """Rows of whole pictures, each row below its title."""
    step, line = tile + _GAP, 22
    drawn = Image.new(
        "RGB", (max(len(row) for _, row in rows) * step + _GAP, len(rows) * (step + line) + _GAP), "white"
    )
    draw, font = ImageDraw.Draw(drawn), ImageFont.load_default(size=14)
    for number, (title, pictures) in enumerate(rows):
        top = number * (step + line) + _GAP
        draw.text((_GAP, top), title, fill="black", font=font)
        for column, picture in enumerate(pictures):
            small = ImageOps.contain(picture, (tile, tile))
            drawn.paste(small, (_GAP + column * step, top + line))
    return drawn


def _frame_colour(images: Images, anchor: int, id: int, is_anchor: bool) -> tuple[int, int, int]:
    own, theirs = images.labels[anchor], images.labels[id]
    if is_anchor or own == UNLABELED or theirs == UNLABELED:
        return _ANCHOR
    return _RIGHT if own == theirs else _WRONG
