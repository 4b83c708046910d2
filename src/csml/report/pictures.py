"""Pictures inside a page: thumbnails in a few large sheets, single pictures as data."""

import base64
import io
from dataclasses import dataclass

import numpy as np
from PIL import Image

from csml.data.decode import DecodeError
from csml.data.images import Images
from csml.progress import watched

_PER_ROW = 32


@dataclass(frozen=True)
class Sheets:
    """N thumbnails, `_PER_ROW` in a row, in as many sheets as it takes."""

    side: int
    per_row: int
    per_sheet: int
    urls: list[str]
    """data: URLs of WebP sheets"""


def thumbnail_sheets(images: Images, ids: np.ndarray, side: int, per_sheet: int = 1024, quality: int = 60) -> Sheets:
    """Thumbnails of `ids`, in this order; a grey square for what cannot be read."""
    urls = []
    starts = range(0, len(ids), per_sheet)
    for start in watched(starts, "thumbnails", total=len(starts)):
        part = ids[start : start + per_sheet]
        sheet = Image.new("RGB", (_PER_ROW * side, -(-len(part) // _PER_ROW) * side), (128, 128, 128))
        for place, id in enumerate(part.tolist()):
            row, column = divmod(place, _PER_ROW)
            picture = thumbnail(images, id, side)
            if picture is not None:
                sheet.paste(picture, (column * side, row * side))
        urls.append(data_url(sheet, quality))
    return Sheets(side, _PER_ROW, per_sheet, urls)


def thumbnail(images: Images, id: int, side: int) -> Image.Image | None:
    """The middle square of a picture; None if it cannot be read."""
    try:
        picture = images.read(id)
    except DecodeError:
        return None
    short = min(picture.size)
    left, top = (picture.width - short) // 2, (picture.height - short) // 2
    square = picture.crop((left, top, left + short, top + short))
    return square.resize((side, side), Image.Resampling.LANCZOS if short > side else Image.Resampling.BICUBIC)


def data_url(picture: Image.Image, quality: int = 75) -> str:
    """A picture as it can stand in a page."""
    buffer = io.BytesIO()
    picture.save(buffer, "WEBP", quality=quality, method=4)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
