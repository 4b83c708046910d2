"""Quality of pictures: size, brightness, contrast, sharpness, and which cannot be read."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from PIL import Image

from csml.data.decode import Decodable, DecodeError
from csml.data.images import FileImages, Images, Subset
from csml.distributed.world import usable_cores
from csml.progress import watched

DARK = 0.1
"""Mean brightness below which a picture is dark."""
FLAT = 0.02
"""Standard deviation of the brightness below which a picture is flat."""
TINY = 32
"""Shorter side in pixels below which a picture is tiny."""
LONG = 4.0
"""Aspect ratio from which a picture is oddly shaped."""
BLURRED = 0.035
"""Sharpness below which a picture is blurred."""
_SIDE = 256
"""Longer side to which pictures are reduced, so that measurements are comparable; smaller pictures are unchanged."""


@dataclass(frozen=True)
class Quality:
    """Measurements of N pictures; NaN (sizes: 0) if one cannot be read."""

    width: np.ndarray
    """int64 `(N,)`, pixels"""
    height: np.ndarray
    """int64 `(N,)`, pixels"""
    brightness: np.ndarray
    """float32 `(N,)`, mean of the grey values, 0 to 1"""
    contrast: np.ndarray
    """float32 `(N,)`, standard deviation of the grey values"""
    sharpness: np.ndarray
    """float32 `(N,)`, strength of the finest details relative to the contrast"""
    errors: dict[int, str]
    """why each unreadable picture cannot be read, by id"""

    def odd(self) -> dict[str, np.ndarray]:
        """Ids of the pictures that are unreadable, dark, flat, blurred, tiny or oddly shaped, the worst first."""
        short, long = np.minimum(self.width, self.height), np.maximum(self.width, self.height)
        shape = long / np.maximum(short, 1)
        dark, flat = self.brightness < DARK, (self.contrast < FLAT) & (self.brightness >= DARK)
        return {
            "unreadable": np.array(sorted(self.errors), np.int64),
            "dark": _ascending(self.brightness, dark),
            "flat": _ascending(self.contrast, flat),
            "blurred": _ascending(self.sharpness, (self.sharpness < BLURRED) & ~flat & ~dark),
            "tiny": _ascending(short, (short > 0) & (short < TINY)),
            "shape": _ascending(-shape, shape >= LONG),
        }

    def in_words(self, kind: str, id: int) -> tuple[str, float]:
        """A description of the problem of a picture, and the measurement behind it."""
        width, height = int(self.width[id]), int(self.height[id])
        match kind:
            case "unreadable":
                return self.errors[id], 1.0
            case "dark":
                return f"brightness {self.brightness[id]:.2f}", float(self.brightness[id])
            case "flat":
                return f"contrast {self.contrast[id]:.3f}", float(self.contrast[id])
            case "blurred":
                return f"sharpness {self.sharpness[id]:.3f}", float(self.sharpness[id])
        return f"{width} × {height} pixels", float(max(width, height) / max(1, min(width, height)))


def image_quality(images: Images) -> Quality:
    """Decode and measure every picture once, several at a time."""
    rows = list(watched(_each(images), "quality", total=len(images)))
    sizes = np.array([size for size, _, _ in rows], np.int64).reshape(-1, 2)
    taken = np.array([figures for _, figures, _ in rows], np.float32).reshape(-1, 3)
    errors = {id: error for id, (_, _, error) in enumerate(rows) if error}
    return Quality(sizes[:, 0], sizes[:, 1], taken[:, 0], taken[:, 1], taken[:, 2], errors)


_One = tuple[tuple[int, int], tuple[float, float, float], str]
"""Width and height; brightness, contrast and sharpness; the error, if it cannot be read."""


def _each(images: Images) -> Iterator[_One]:
    with ThreadPoolExecutor(usable_cores()) as pool:
        for start in range(0, len(images), 1024):  # in pieces, so that Ctrl-C takes effect soon
            ids = range(start, min(start + 1024, len(images)))
            yield from pool.map(lambda id: _one(images, id), ids)


def _one(images: Images, id: int) -> _One:
    try:
        picture = _opened(images, id)
        if isinstance(picture, Image.Image):
            return picture.size, figures(picture), ""
        size = (picture.width, picture.height)
        return size, figures(picture.rgb(max(1, max(size) // (2 * _SIDE)))), ""
    except DecodeError as error:
        return (0, 0), (np.nan, np.nan, np.nan), str(error.__cause__ or error)


def _opened(images: Images, id: int) -> Decodable | Image.Image:
    """The file, so that a large one need not be decoded in full; or the picture, if there is no file."""
    if isinstance(images, Subset):
        return _opened(images.images, int(images.ids[id]))
    return images.open(id) if isinstance(images, FileImages) else images.read(id)


def figures(picture: Image.Image) -> tuple[float, float, float]:
    """Brightness, contrast and sharpness of a picture."""
    grey = picture.convert("L")
    grey.thumbnail((_SIDE, _SIDE), Image.Resampling.BOX)
    values = np.asarray(grey, np.float32) / 255
    contrast = float(values.std())
    if min(values.shape) < 3:
        return float(values.mean()), contrast, np.nan
    middle = values[1:-1, 1:-1]
    around = values[:-2, 1:-1] + values[2:, 1:-1] + values[1:-1, :-2] + values[1:-1, 2:]
    return float(values.mean()), contrast, float((around / 4 - middle).std() / max(contrast, 1e-6))


def _ascending(values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    ids = np.flatnonzero(chosen)
    return ids[np.argsort(values[ids], kind="stable")]
