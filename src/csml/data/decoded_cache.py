"""A cache of decoded images: an epoch reads pixels instead of decoding every file again.

Each image is one file: a header, and its pixels, no larger than crops need. The name of the file is a hash of the
image's path, size and time, so a changed image gets a new entry. The first process that needs an image stores it. A
crop is always cut from the reduced image, whether or not it was cached before: the cache changes the speed of a run,
never its result.
"""

import contextlib
import os
import shutil
import struct
import time
import zlib
from collections.abc import Container, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from csml.config import ImagesConfig
from csml.data.bit_depth import Reading, false_colour, reading_of
from csml.data.decode import Decodable, open_picture
from csml.files import cache_dir, cache_key, remove_oldest

_FORMAT = 1
_HEADER = struct.Struct("<4sIIIIII")
"""mark, height and width of the image, height, width and channels stored, checksum of the pixels"""
_MARK = b"csm1"
_DETAIL, _ROUND = 2.25, 32
"""The shorter side as a multiple of `images.size`, and the step to which it is rounded up: a crop of a fifth of the
area is not enlarged. It is never less than the centre crops of `images.eval_size` need."""
_LONGEST = 3
"""Images with a larger aspect ratio are read from their files."""
_ENLARGED = 1.05
"""Largest factor by which a crop may be enlarged; beyond it the file is decoded instead."""
_USUAL_RATIO = 4 / 3
_USED_SECONDS = 3600
"""An entry is marked as used, which writes to the disk, at most this often: only one process of a run does it."""
_GB = 10**9


@dataclass(frozen=True)
class DecodedStore:
    """Cached images with a shorter side of at most `side` pixels."""

    side: int
    reading: Reading
    most: int
    """size limit of all entries together, in bytes"""

    def open(self, path: Path) -> Decodable:
        """Open an image, from the cache if possible; raises DecodeError if the file is not an image."""
        entry = self.entry(path)
        stored = None if entry is None else read_entry(entry, self.reading.channels)
        if stored is not None:
            return StoredPicture(*stored, path, self.reading)
        picture = self.reduced(open_picture(path, self.reading), path)
        if entry is not None and isinstance(picture, StoredPicture):
            _write_entry(entry, picture.height, picture.width, picture.pixels)
        return picture

    def reduced(self, picture: Decodable, path: Path | None = None) -> Decodable:
        """The reduced picture that the store would keep, so that its crops equal those of a stored one."""
        shorter, longer = sorted((picture.height, picture.width))
        if longer > _LONGEST * shorter:
            return picture
        scale = min(1.0, self.side / shorter)
        size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
        bands = [_resized(band, size) for band in picture.bands(1 / scale)]
        pixels = np.concatenate([np.atleast_3d(np.asarray(band)) for band in bands], axis=2)  # (h, w, C)
        return StoredPicture(picture.height, picture.width, pixels, path, self.reading)

    def entry(self, path: Path) -> Path | None:
        """The cache file of a decoded image, which need not exist; None if the image file does not exist."""
        try:
            status = os.stat(path)
        except OSError:
            return None
        key = cache_key(_FORMAT, str(path), status.st_size, status.st_mtime_ns, self.side, self.reading)
        return decoded_folder() / key[:2] / key[2:]

    def missing(self, paths: Iterable[Path]) -> int:
        """How many of the images are not cached yet."""
        return sum(not (entry and entry.exists()) for entry in map(self.entry, paths))

    def bytes_of(self, images: int) -> int:
        """Approximate size of this many images in bytes."""
        return int(images * self.side * self.side * _USUAL_RATIO * self.reading.channels)

    def make_room(self, images: int, keep: Container[Path] = ()) -> None:
        """Remove the entries unused for longest until this many more images fit into `most` bytes; `keep` stays."""
        remove_oldest(decoded_folder().glob("*/*"), self.most - self.bytes_of(images), keep)


class StoredPicture:
    """An image whose reduced pixels are in memory.

    Args:
        height, width: of the image in the file; boxes are in its coordinates.
        pixels: uint8 `(h, w, C)`, reduced.
        path: the file, for crops that need more detail; None if there is no file.
        reading: how the file is read.
    """

    deep = False

    def __init__(self, height: int, width: int, pixels: np.ndarray, path: Path | None, reading: Reading) -> None:
        self.height, self.width, self.pixels, self.path, self.reading = height, width, pixels, path, reading

    def rgb(self, shrink: float = 1) -> Image.Image:
        return false_colour(self.pixels) if self.path is None else open_picture(self.path, self.reading).rgb(shrink)

    def bands(self, shrink: float = 1) -> tuple[Image.Image, ...]:
        # `shrink` requests twice the pixels of a crop, because decoders shrink coarsely; these were resized accurately.
        enlarged = self.width / self.pixels.shape[1] / max(1.0, 2 * shrink)
        if enlarged > _ENLARGED and self.path is not None:
            return open_picture(self.path, self.reading).bands(shrink)
        if self.pixels.shape[2] == 3:
            return (Image.fromarray(self.pixels),)
        return tuple(
            Image.fromarray(np.ascontiguousarray(self.pixels[..., channel])) for channel in range(self.pixels.shape[2])
        )


def store_for(config: ImagesConfig, images: int) -> DecodedStore | None:
    """The store of `images.cache`; None if it is off, or if this many images do not fit."""
    store = _store(config)
    fits = store.bytes_of(images) <= store.most
    return store if config.cache == "on" or (config.cache == "auto" and fits) else None


def describe_cache(config: ImagesConfig, images: int, paths: Iterable[Path]) -> str | None:
    """Make room for this many images, and describe for the log what the cache does; `paths` are used if they fit."""
    if config.cache == "off":
        return None
    store, room = store_for(config, images), _store(config).bytes_of(images) / _GB
    if store is None:
        return (
            f"images.cache: off, because {images:,} decoded images take about {room:,.0f} GB "
            f"(images.cache_gb {config.cache_gb:g}); every epoch decodes every file"
        )
    entries = [store.entry(path) for path in paths]
    there = {entry for entry in entries if entry is not None and _use(entry)}
    missing = sum(entry not in there for entry in entries)
    if missing == 0:
        return f"images.cache: all {images:,} images are decoded"
    store.make_room(missing, keep=there)
    return f"images.cache: {missing:,} images are decoded once, to {store.side} pixels (about {room:.2g} GB)"


def decoded_folder() -> Path:
    return cache_dir() / "decoded"


def read_entry(file: Path, channels: int) -> tuple[int, int, np.ndarray] | None:
    """Height and width of the image, and its reduced pixels `(h, w, C)`; None if the entry is missing or damaged."""
    try:
        content = file.read_bytes()
        mark, height, width, h, w, c, checksum = _HEADER.unpack_from(content)
    except (OSError, struct.error):
        return None
    whole = mark == _MARK and c == channels and len(content) == _HEADER.size + h * w * c
    if not whole or zlib.adler32(memoryview(content)[_HEADER.size :]) != checksum:
        return None
    return height, width, np.frombuffer(content, np.uint8, offset=_HEADER.size).reshape(h, w, c)


def _write_entry(file: Path, height: int, width: int, pixels: np.ndarray) -> None:
    """Store an image if there is room; readers never see part of it. A crash may leave a truncated file, which the
    checksum detects, so there is no fsync."""
    content = pixels.tobytes()
    header = _HEADER.pack(_MARK, height, width, *pixels.shape, zlib.adler32(content))
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    with contextlib.suppress(OSError):  # the cache only saves time
        file.parent.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(file.parent).free < _GB:
            return
        try:
            temporary.write_bytes(header + content)
            os.replace(temporary, file)
        finally:
            temporary.unlink(missing_ok=True)


def _use(entry: Path) -> bool:
    """Mark an entry as used now, so that others are removed before it; False if there is none."""
    try:
        unused = time.time() - entry.stat().st_mtime
    except OSError:
        return False
    if unused > _USED_SECONDS:
        with contextlib.suppress(OSError):  # a cache that this user may only read
            os.utime(entry)
    return True


def _resized(band: Image.Image, size: tuple[int, int]) -> Image.Image:
    return band if band.size == size else band.resize(size, Image.Resampling.BILINEAR)


def _store(config: ImagesConfig) -> DecodedStore:
    needed = max(_DETAIL * config.size, config.center_size / config.eval_crop)
    side = -(-int(needed) // _ROUND) * _ROUND
    return DecodedStore(side, reading_of(config), int(config.cache_gb * _GB))
