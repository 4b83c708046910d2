"""Square crops of one picture, which is decoded once and no larger than needed."""

from collections.abc import Sequence

import numpy as np
from PIL import Image

from csml.data.decode import Decodable


def crop_picture(picture: Decodable, boxes: np.ndarray, sizes: Sequence[int]) -> list[np.ndarray]:
    """Decode a file once, no larger than needed, cut its boxes `(V, 4)` and resize each to its size: uint8
    `(size, size, C)` each."""
    # Decode at least twice as large as needed, as Pillow's thumbnails do: the resize filter then hides the shortcut.
    shrink = min(min(box[2], box[3]) / (2 * size) for box, size in zip(boxes, sizes, strict=True))
    bands = picture.bands(shrink)
    across, down = bands[0].width / picture.width, bands[0].height / picture.height
    pieces = []
    for (top, left, height, width), size in zip(boxes.tolist(), sizes, strict=True):
        box = (left * across, top * down, (left + width) * across, (top + height) * down)
        cut = [_cut_band(band, box, size, whole=across == down == 1) for band in bands]
        pieces.append(np.concatenate([np.atleast_3d(np.asarray(piece)) for piece in cut], axis=2))  # (size, size, C)
    return pieces


def _cut_band(band: Image.Image, box: tuple[float, float, float, float], size: int, whole: bool) -> Image.Image:
    """A square crop. In a shrunk image, a box has fractional coordinates."""
    if whole:
        left, top, right, bottom = map(int, box)
        return band.crop((left, top, right, bottom)).resize((size, size), Image.Resampling.BILINEAR)
    inside = (*box[:2], min(box[2], band.width), min(box[3], band.height))
    return band.resize((size, size), Image.Resampling.BILINEAR, box=inside)
