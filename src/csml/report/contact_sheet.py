"""A sheet of anchors and their nearest neighbours, right and wrong marked where labels exist."""

import numpy as np
from PIL import Image, ImageDraw

from csml.data.images import UNLABELED, Images

_GAP = 4
_RIGHT, _WRONG, _ANCHOR = (60, 160, 90), (200, 60, 50), (120, 120, 120)


def neighbor_sheet(
    images: Images, neighbors: np.ndarray, anchors: np.ndarray, columns: int = 8, tile: int = 56
) -> Image.Image:
    """One row per anchor: the anchor in a grey frame, then the nearest images, green for an equal label, red else.

    Args:
        images: the data set.
        neighbors: `(N, k)` ids, best first.
        anchors: `(R,)` ids, one row each.
        columns: neighbours shown, at most k.
        tile: side of a picture in pixels.
    """
    columns = min(columns, neighbors.shape[1])
    step = tile + 3 * _GAP
    sheet = Image.new("RGB", ((columns + 1) * step + 2 * _GAP, len(anchors) * step), "white")
    draw = ImageDraw.Draw(sheet)
    for row, anchor in enumerate(anchors.tolist()):
        for column, id in enumerate([anchor, *neighbors[anchor, :columns].tolist()]):
            left = column * step + _GAP + (2 * _GAP if column else 0)  # the anchor stands apart
            top = row * step + _GAP
            frame = _frame_colour(images, anchor, id, is_anchor=column == 0)
            draw.rectangle([left, top, left + tile + 2 * _GAP - 1, top + tile + 2 * _GAP - 1], fill=frame)
            picture = images.read(id).resize((tile, tile), Image.Resampling.LANCZOS)
            sheet.paste(picture, (left + _GAP, top + _GAP))
    return sheet


def _frame_colour(images: Images, anchor: int, id: int, is_anchor: bool) -> tuple[int, int, int]:
    own, theirs = images.labels[anchor], images.labels[id]
    if is_anchor or own == UNLABELED or theirs == UNLABELED:
        return _ANCHOR
    return _RIGHT if own == theirs else _WRONG
