"""Decoding of any image file to upright 8-bit channels: RGB, or as many as `images.channels` says."""

import functools
import importlib.util
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Protocol

import numpy as np
from PIL import Image, ImageOps, ImageSequence, UnidentifiedImageError, features

from csml.data.bit_depth import COLOUR, Reading, as_bytes
from csml.files import require_file

EXTENSIONS = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".jp2"})
"""Suffixes of the files that every installation reads."""
AVIF, HEIC = frozenset({".avif"}), frozenset({".heic", ".heif"})
"""Suffixes of files that need a newer Pillow, or the extra [heic]."""

_ORIENTATION, _QUARTER_TURNS = 0x0112, (5, 6, 7, 8)
"""The EXIF tag of the orientation, and its values that swap height and width."""
_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
"""The first bytes of a TIFF or BigTIFF file."""


class DecodeError(Exception):
    """A file cannot be read as an image."""


class Decodable(Protocol):
    """An image whose size is known and which is decoded on demand."""

    height: int
    width: int
    deep: bool
    """whether its values have more than 8 bits and are scaled to 8"""

    def rgb(self, shrink: float = 1) -> Image.Image:
        """The image in RGB, for display and for networks with three input channels."""

    def bands(self, shrink: float = 1) -> tuple[Image.Image, ...]:
        """8-bit images of one or three channels each, which together hold all channels of the image."""


@functools.cache
def image_suffixes() -> frozenset[str]:
    """Suffixes of the files that this installation reads."""
    found = EXTENSIONS
    if features.check("avif"):
        found |= AVIF
    if importlib.util.find_spec("pillow_heif") is not None:
        found |= HEIC
    return found


def open_picture(source: Path | BytesIO, reading: Reading, upright: bool = True) -> Decodable:
    """Open a file, with tifffile if Pillow does not return the channels and depth of `reading`.

    Raises:
        DecodeError: the file is missing, is not an image, or is suspiciously large.
    """
    deep = reading.channels not in (1, 3) or reading.sixteen_bit == "percentile"
    if deep and _is_tiff(source) and importlib.util.find_spec("tifffile") is not None:
        return _open_tiff(source, reading)
    try:
        return Picture(source, upright, reading)
    except DecodeError as error:
        if not isinstance(error.__cause__, UnidentifiedImageError) or not _is_tiff(source):
            raise
        return _open_tiff(source, reading)


class Picture:
    """An image file that is opened but not decoded yet. The format is detected from the content, not from the name.

    Args:
        path: the file.
        upright: rotate by the EXIF tag; else return the image as stored.
        reading: number of channels, and how 16 bits become 8.

    Raises:
        DecodeError: the file is missing, is not an image, or is suspiciously large.
    """

    def __init__(self, path: str | Path | BytesIO, upright: bool = True, reading: Reading = COLOUR) -> None:
        self.path, self.upright, self.reading = path, upright, reading
        with self._as_decode_error():
            self._image = _open_image(path)
            turned = upright and self._image.getexif().get(_ORIENTATION) in _QUARTER_TURNS
            width, height = self._image.size
            self.height, self.width = (width, height) if turned else (height, width)
            self.deep = _is_deep(self._image)

    def stored_size(self) -> tuple[int, int]:
        """Height and width before the EXIF rotation."""
        return self._image.height, self._image.width

    def close(self) -> None:
        self._image.close()

    def rgb(self, shrink: float = 1) -> Image.Image:
        """Decode to an RGB image and close the file.

        Args:
            shrink: a JPEG may be decoded up to this many times smaller, which is faster. The returned image shows
                by its size how much it was shrunk.

        Raises:
            DecodeError: the file is damaged or truncated.
        """
        with self._as_decode_error(), self._image as image:
            if shrink >= 2:
                image.draft("RGB", (image.width // int(shrink), image.height // int(shrink)))
            image.load()
            return to_rgb(ImageOps.exif_transpose(image) if self.upright else image, self.reading)

    def bands(self, shrink: float = 1) -> tuple[Image.Image, ...]:
        """Decode to the channels of `reading` and close the file; arguments and errors as `rgb`."""
        if self.reading.channels in (1, 3):
            return bands_of(self.rgb(shrink), self.reading)
        with self._as_decode_error(), self._image as image:
            upright = ImageOps.exif_transpose if self.upright else Image.Image.copy
            pages = [upright(page) for page in ImageSequence.Iterator(image)]
            return bands_of(pages[0], self.reading, pages[1:])

    @contextmanager
    def _as_decode_error(self) -> Iterator[None]:
        with as_decode_error(self.path):
            yield


@contextmanager
def as_decode_error(path: object) -> Iterator[None]:
    """Turn any exception of a decoder into a DecodeError that names the file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            yield
    except Exception as error:  # decoders raise all kinds of exceptions on damaged files
        raise DecodeError(f"{path}: {error or type(error).__name__}") from error


def check_channels(found: int, reading: Reading) -> None:
    """Raise ValueError unless an image has the number of channels of `reading`."""
    if found != reading.channels:
        raise ValueError(f"it has {found} channels, and images.channels is {reading.channels}")


def bands_of(image: Image.Image, reading: Reading, more: Sequence[Image.Image] = ()) -> tuple[Image.Image, ...]:
    """The channels of an image, including its other pages if each page is a channel; ValueError if their number differs
    from `reading`."""
    if reading.channels == 3:
        return (to_rgb(image, reading),)
    if reading.channels == 1:
        return (to_rgb(image, reading).convert("L"),)
    found = [band for page in (image, *more) for band in page.split()]
    check_channels(len(found), reading)
    return tuple(_eight_bits(band, reading) for band in found)


def to_rgb(image: Image.Image, reading: Reading = COLOUR) -> Image.Image:
    """Convert any Pillow mode to RGB: 16-bit grey is scaled, not clipped; transparency becomes white."""
    if image.mode == "RGB":
        return image
    if _is_deep(image):
        return _eight_bits(image, reading).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image).convert("RGB")
    return image.convert("RGB")


def _is_deep(image: Image.Image) -> bool:
    return image.mode in ("I", "F") or image.mode.startswith("I;16")


def _eight_bits(band: Image.Image, reading: Reading) -> Image.Image:
    """One channel in 8 bits. Pillow's 32-bit mode I holds the 16 bits of a PNG."""
    if not _is_deep(band):
        return band.convert("L")
    values = np.asarray(band)
    return Image.fromarray(as_bytes(values if band.mode == "F" else values.clip(0, 65535).astype(np.uint16), reading))


def _open_image(path: str | Path | BytesIO) -> Image.Image:
    if not isinstance(path, BytesIO):
        require_file(path)
    try:
        return Image.open(path)
    except UnidentifiedImageError:
        if importlib.util.find_spec("pillow_heif") is None:
            raise
        import pillow_heif

        pillow_heif.register_heif_opener()  # once per process; Pillow tries it after its own formats
        if isinstance(path, BytesIO):
            path.seek(0)
        return Image.open(path)


def _is_tiff(source: Path | BytesIO) -> bool:
    try:
        if isinstance(source, BytesIO):
            return source.getvalue()[:4] in _TIFF
        require_file(source)
        with source.open("rb") as file:
            return file.read(4) in _TIFF
    except OSError:
        return False


def _open_tiff(source: Path | BytesIO, reading: Reading) -> Decodable:
    from csml.data.tiff import TiffPicture  # here: it needs the extra [tiff]

    if isinstance(source, BytesIO):
        source.seek(0)
    return TiffPicture(source, reading)
