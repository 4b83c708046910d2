"""Any image file to upright 8-bit RGB."""

import warnings
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

EXTENSIONS = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".jp2"})


class DecodeError(Exception):
    """A file is not a picture that can be read."""


def read_rgb(path: str | Path) -> Image.Image:
    """Decode a file, whatever its name says its format is, to an RGB picture the right way up.

    Raises:
        DecodeError: the file is missing, broken, cut short or suspiciously large.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as image:
                image.load()
                return to_rgb(ImageOps.exif_transpose(image))
    except Exception as error:  # damaged files raise whatever their decoder stumbles over
        raise DecodeError(f"{path}: {error or type(error).__name__}") from error


def to_rgb(image: Image.Image) -> Image.Image:
    """Any Pillow mode to RGB: deep grey is scaled, not cut off; transparency is laid on white."""
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
    if image.mode == "F":  # no fixed range: stretch what is there
        finite = np.nan_to_num(values, posinf=0.0, neginf=0.0)
        low, high = finite.min(), finite.max()
        scaled = (finite - low) * (255 / (high - low) if high > low else 0.0)
    else:
        scaled = values / 257  # 0 … 65 535
    return Image.fromarray(scaled.round().clip(0, 255).astype(np.uint8)).convert("RGB")
