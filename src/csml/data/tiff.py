"""TIFF files that Pillow cannot read: many channels, planes or pages, 16 bits per channel (microscopes, satellites)."""

from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from csml.data.bit_depth import Reading, as_bytes, false_colour
from csml.data.decode import DecodeError, as_decode_error, check_channels
from csml.extras import MissingExtra, extra

_LUMA = (0.299, 0.587, 0.114)


class TiffPicture:
    """A TIFF file opened with tifffile: its first series is a picture with height, width and channels, in any order.

    Raises:
        DecodeError: the file is damaged, is suspiciously large, or has more than these three dimensions.
    """

    def __init__(self, source: Path | BytesIO, reading: Reading) -> None:
        try:
            with extra("tiff", "this TIFF file"):
                import tifffile
        except MissingExtra as error:
            raise DecodeError(f"{source}: {error}") from error
        self.source, self.reading = source, reading
        with as_decode_error(source), tifffile.TiffFile(source) as file:
            series = file.series[0]
            axes = "".join(axis for axis, length in zip(series.axes, series.shape, strict=True) if length > 1)
            lengths = dict(zip(series.axes, series.shape, strict=True))
            if axes == "QYX" and lengths["Q"] != reading.channels == lengths["X"]:
                # An array (height, width, channels) saved without axis names: its rows became pages.
                axes = "YXC"
                lengths = dict(zip(axes, series.shape, strict=True))
            rest = axes.replace("Y", "", 1).replace("X", "", 1)
            if len(rest) > 1:
                raise ValueError(f"it has the dimensions {series.axes}; expected height, width and channels")
            self.height, self.width = lengths["Y"], lengths["X"]
            self.deep = series.dtype != np.uint8
            self.axis = axes.index(rest) if rest else None
            # Pages written one by one form separate series.
            pages = sum(one.shape == series.shape and one.dtype == series.dtype for one in file.series)
            self.pages = pages if not rest and pages == reading.channels else 1
            self.channels = lengths[rest] if rest else self.pages
            if not self.height * self.width:
                raise ValueError("it has no pixels")
            if Image.MAX_IMAGE_PIXELS is not None and self.height * self.width > Image.MAX_IMAGE_PIXELS:
                raise ValueError(f"it has {self.height * self.width:,} pixels, too many for a picture")

    def bands(self, shrink: float = 1) -> tuple[Image.Image, ...]:
        """Decode; a TIFF file is never shrunk."""
        values, wanted = self._values(), self.reading.channels  # (H, W, C)
        with as_decode_error(self.source):
            if wanted == 3 and self.channels == 1:
                values = values.repeat(3, axis=2)
            elif wanted == 1 and self.channels == 3:
                values = (values @ np.array(_LUMA)).round().astype(np.uint8)[..., None]
            else:
                check_channels(self.channels, self.reading)
        return tuple(Image.fromarray(np.ascontiguousarray(values[..., c])) for c in range(wanted))

    def rgb(self, shrink: float = 1) -> Image.Image:
        """The first three channels, or one as grey, for display."""
        return false_colour(self._values())

    def _values(self) -> np.ndarray:
        """uint8 `(H, W, C)`"""
        import tifffile

        with as_decode_error(self.source):
            if isinstance(self.source, BytesIO):
                self.source.seek(0)
            with tifffile.TiffFile(self.source) as file:
                pages = [np.squeeze(series.asarray()) for series in file.series[: self.pages]]
            if self.axis is None:
                values = np.stack([page.reshape(self.height, self.width) for page in pages], axis=2)
            else:
                values = np.moveaxis(pages[0], self.axis, 2)
            return as_bytes(values, self.reading)
