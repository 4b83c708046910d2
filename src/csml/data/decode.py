"""Decoding of any image file to upright 8-bit RGB."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

EXTENSIONS = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".jp2"})

_ORIENTATION, _QUARTER_TURNS = 0x0112, (5, 6, 7, 8)
"""The EXIF tag of the orientation, and its values that swap height and width."""


class DecodeError(Exception):
    """A file cannot be read as an image."""


class Picture:
    """An image file that is opened but not decoded yet. The format is detected from the content, not from the name.

    Args:
        path: the file.
        upright: rotate as the EXIF tag says; else leave the image as it is stored.

    Raises:
        DecodeError: the file is missing, is not an image, or is suspiciously large.
    """

    def __init__(self, path: str | Path | BytesIO, upright: bool = True) -> None:
        self.path, self.upright = path, upright
        with self._as_decode_error():
            self._image: Image.Image = Image.open(path)
            turned = upright and self._image.getexif().get(_ORIENTATION) in _QUARTER_TURNS
            width, height = self._image.size
            self.height, self.width = (width, height) if turned else (height, width)

    def stored_size(self) -> tuple[int, int]:
        """Height and width before the EXIF rotation."""
        return self._image.height, self._image.width

    def close(self) -> None:
        self._image.close()

    def rgb(self, shrink: int = 1) -> Image.Image:
        """Decode to an RGB image and close the file.

        Args:
            shrink: a JPEG may be decoded up to this many times smaller, which is faster. The size of the returned image
                shows by how much it was shrunk.

        Raises:
            DecodeError: the file is damaged or truncated.
        """
        with self._as_decode_error(), self._image as image:
            if shrink > 1:
                image.draft("RGB", (image.width // shrink, image.height // shrink))
            image.load()
            return to_rgb(ImageOps.exif_transpose(image) if self.upright else image)

    @contextmanager
    def _as_decode_error(self) -> Iterator[None]:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                warnings.simplefilter("error", Image.DecompressionBombWarning)
                yield
        except Exception as error:  # decoders raise all kinds of exceptions on damaged files
            raise DecodeError(f"{self.path}: {error or type(error).__name__}") from error


def to_rgb(image: Image.Image) -> Image.Image:
    """Convert any Pillow mode to RGB: 16-bit grey is scaled, not clipped; transparency becomes white."""
    if image.mode == "RGB":
        return image
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return _from_deep_grey(image)
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image).convert("RGB")
    return image.convert("RGB")


def _from_deep_grey(image: Image.Image) -> Image.Image:
    values = np.asarray(image, dtype=np.float64)
    if image.mode == "F":  # no fixed range: scale to the range of the values
        finite = np.nan_to_num(values, posinf=0.0, neginf=0.0)
        low, high = finite.min(), finite.max()
        scaled = (finite - low) * (255 / (high - low) if high > low else 0.0)
    else:
        scaled = values / 257  # 0 … 65 535
    return Image.fromarray(scaled.round().clip(0, 255).astype(np.uint8)).convert("RGB")
