"""Pictures inside a page: thumbnails in a few large sheets, single pictures as data URLs."""

import base64
import io
from dataclasses import dataclass

import numpy as np
from PIL import Image

from csml.data.bit_depth import false_colour
from csml.data.images import Images
from csml.pixels import center_boxes
from csml.progress import watched

_PER_ROW = 32


@dataclass(frozen=True)
class Sheets:
    """N thumbnails on one sheet or several."""

    side: int
    per_row: int
    per_sheet: int
    urls: list[str]
    """data: URLs of WebP sheets"""


def thumbnail_sheets(images: Images, ids: np.ndarray, side: int, per_sheet: int = 1024, quality: int = 60) -> Sheets:
    """Thumbnails of `ids`, in this order; an unreadable image is a grey square."""
    urls = []
    starts = range(0, len(ids), per_sheet)
    for start in watched(starts, "thumbnails", total=len(starts)):
        shown = ids[start : start + per_sheet]
        squares, good = _squares(images, shown, side)
        sheet = Image.new("RGB", (_PER_ROW * side, -(-len(shown) // _PER_ROW) * side), (128, 128, 128))
        for place in np.flatnonzero(good).tolist():
            row, column = divmod(place, _PER_ROW)
            sheet.paste(Image.fromarray(squares[place]), (column * side, row * side))
        urls.append(data_url(sheet, quality))
    return Sheets(side, _PER_ROW, per_sheet, urls)


def thumbnail(images: Images, id: int, side: int) -> Image.Image | None:
    """The centre square of an image; None if the image cannot be read."""
    squares, good = _squares(images, np.array([id]), side)
    return Image.fromarray(squares[0]) if good[0] else None


def _squares(images: Images, ids: np.ndarray, side: int) -> tuple[np.ndarray, np.ndarray]:
    """Centre squares uint8 `(B, side, side, 3)`, decoded no larger than needed, and which images could be read."""
    (crops,), good = images.cut(ids, [(lambda rows, sizes: center_boxes(sizes, 1.0), side)])
    pixels = crops.permute(0, 2, 3, 1).contiguous().numpy()  # (B, side, side, C)
    if images.channels != 3:
        pixels = np.stack([np.asarray(false_colour(square)) for square in pixels])
    return pixels, good


def data_url(picture: Image.Image, quality: int = 75) -> str:
    """A picture as a data URL."""
    buffer = io.BytesIO()
    picture.save(buffer, "WEBP", quality=quality, method=4)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
