"""N images with ids 0 … N − 1, in one uint8 array or as files; both cut batches of crops by id."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from csml.data.bit_depth import COLOUR, Reading, false_colour
from csml.data.cropping import crop_picture
from csml.data.decode import Decodable, DecodeError, open_picture
from csml.data.decoded_cache import DecodedStore
from csml.data.folder_index import FolderIndex
from csml.files import cache_key
from csml.pixels import crop_resize

UNLABELED = -1
FINGERPRINTED = 16
"""Number of images whose content goes into the fingerprint of a data set; hashing all would read every file."""
_OPEN_AT_ONCE = 64
"""Number of files that one process opens at a time."""

BoxMaker = Callable[[slice, Tensor], Tensor]
"""(rows of the batch, image sizes `(b, 2)` (height, width)) → boxes `(b, 4)` (top, left, height, width)."""


class Images(Protocol):
    """A data set with random access by id."""

    labels: np.ndarray
    """int64 `(N,)`, UNLABELED if unknown"""
    classes: tuple[str, ...]

    @property
    def channels(self) -> int:
        """C, channels of every image."""

    def __len__(self) -> int: ...

    def name(self, id: int) -> str:
        """A readable name: the path, or data set and number."""

    def fingerprint(self) -> str:
        """A hash that changes when an id refers to another image."""

    def read(self, id: int) -> Image.Image:
        """The whole image in RGB, for display: the first three channels if there are more.

        Raises:
            DecodeError: it cannot be read.
        """

    def cut(self, ids: np.ndarray, cuts: Sequence[tuple[BoxMaker, int]]) -> tuple[list[Tensor], np.ndarray]:
        """Decode each of B images once and cut several crops from it.

        Args:
            ids: `(B,)`.
            cuts: for each crop, its boxes and the size to which they are resized.

        Returns:
            For each of `cuts` uint8 `(B, C, size, size)`; and bool `(B,)`, False if an image could not be read, in
            which case its crops are black.
        """


class ArrayImages:
    """Images of equal size in one array, in memory or memory-mapped."""

    def __init__(self, pixels: np.ndarray, labels: np.ndarray, classes: tuple[str, ...], title: str) -> None:
        self.pixels = pixels  # uint8 (N, H, W, C)
        self.labels = labels
        self.classes = classes
        self.title = title

    @property
    def channels(self) -> int:
        return int(self.pixels.shape[3])

    def __len__(self) -> int:
        return len(self.pixels)

    def name(self, id: int) -> str:
        return f"{self.title}/{id}"

    def fingerprint(self) -> str:
        return cache_key(self.title, len(self))

    def read(self, id: int) -> Image.Image:
        return false_colour(np.asarray(self.pixels[id]))

    def cut(self, ids: np.ndarray, cuts: Sequence[tuple[BoxMaker, int]]) -> tuple[list[Tensor], np.ndarray]:
        batch = torch.from_numpy(self.pixels[ids])  # (B, H, W, C), a copy
        sizes = torch.tensor(batch.shape[1:3]).expand(len(batch), 2)  # (B, 2)
        crops = [crop_resize(batch, make(slice(None), sizes), size) for make, size in cuts]
        return crops, np.ones(len(ids), bool)


class FileImages(ABC):
    """Images in files, decoded on access."""

    labels: np.ndarray
    classes: tuple[str, ...]
    reading: Reading = COLOUR
    """channels and depth"""
    decoded: DecodedStore | None = None
    """the cache of decoded images"""

    @property
    def channels(self) -> int:
        return self.reading.channels

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def name(self, id: int) -> str: ...

    @abstractmethod
    def fingerprint(self) -> str: ...

    @abstractmethod
    def source(self, id: int) -> Path | BytesIO:
        """The file to decode, or its content."""

    def open(self, id: int) -> Decodable:
        """Open the file without decoding it; raises DecodeError if it is not an image."""
        return open_picture(self.source(id), self.reading)

    def read(self, id: int) -> Image.Image:
        return self.open(id).rgb()

    def cut(self, ids: np.ndarray, cuts: Sequence[tuple[BoxMaker, int]]) -> tuple[list[Tensor], np.ndarray]:
        crops = [np.zeros((len(ids), size, size, self.channels), np.uint8) for _, size in cuts]
        good = np.zeros(len(ids), bool)
        for start in range(0, len(ids), _OPEN_AT_ONCE):
            rows = slice(start, start + _OPEN_AT_ONCE)
            pictures = [self._open(id) for id in ids[rows].tolist()]
            sizes = torch.tensor([[p.height, p.width] if p else [1, 1] for p in pictures])  # (b, 2)
            boxes = torch.stack([make(rows, sizes) for make, _ in cuts], dim=1).numpy()  # (b, V, 4)
            for row, picture in enumerate(pictures):
                if picture is None:
                    continue
                with suppress(DecodeError):
                    pieces = crop_picture(picture, boxes[row], [size for _, size in cuts])
                    for crop, piece in zip(crops, pieces, strict=True):
                        crop[start + row] = piece
                    good[start + row] = True
        return [torch.from_numpy(crop).permute(0, 3, 1, 2).contiguous() for crop in crops], good

    def _open(self, id: int) -> Decodable | None:
        """Open an image to cut crops from it."""
        try:
            source = self.source(id) if self.decoded is not None else None
            return self.decoded.open(source) if self.decoded and isinstance(source, Path) else self.open(id)
        except DecodeError:
            return None


class FolderImages(FileImages):
    """Image files: all in a folder and its subfolders, or those of a list."""

    def __init__(
        self,
        index: FolderIndex,
        labels: np.ndarray | None = None,
        classes: tuple[str, ...] = (),
        reading: Reading = COLOUR,
        decoded: DecodedStore | None = None,
    ) -> None:
        self.index = index
        self.reading = reading
        self.decoded = decoded
        self.labels = np.full(len(index), UNLABELED, dtype=np.int64) if labels is None else labels
        self.classes = classes

    def __len__(self) -> int:
        return len(self.index)

    def path(self, id: int) -> Path:
        return self.index.path(id)

    def source(self, id: int) -> Path:
        return self.path(id)

    def name(self, id: int) -> str:
        return self.index.name(id)

    def fingerprint(self) -> str:
        return self.index.fingerprint()


class ListedImages(FileImages):
    """Individual files, in the given order."""

    def __init__(self, paths: Sequence[Path], reading: Reading = COLOUR, decoded: DecodedStore | None = None) -> None:
        self.paths = list(paths)
        self.reading = reading
        self.decoded = decoded
        self.labels = np.full(len(paths), UNLABELED, dtype=np.int64)
        self.classes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.paths)

    def path(self, id: int) -> Path:
        return self.paths[id]

    def source(self, id: int) -> Path:
        return self.path(id)

    def name(self, id: int) -> str:
        return str(self.paths[id])

    def fingerprint(self) -> str:
        return cache_key(*(str(path) for path in self.paths))


class Subset:
    """Some images of another data set, renumbered from 0, with other labels and classes if they are given."""

    def __init__(
        self,
        images: Images,
        ids: np.ndarray,
        labels: np.ndarray | None = None,
        classes: tuple[str, ...] | None = None,
    ) -> None:
        self.images = images
        self.ids = ids
        self.labels = images.labels[ids] if labels is None else labels
        self.classes = images.classes if classes is None else classes

    @property
    def channels(self) -> int:
        return self.images.channels

    def __len__(self) -> int:
        return len(self.ids)

    def name(self, id: int) -> str:
        return self.images.name(int(self.ids[id]))

    def fingerprint(self) -> str:
        return cache_key(self.images.fingerprint(), self.ids.tobytes(), self.labels.tobytes(), self.classes)

    def read(self, id: int) -> Image.Image:
        return self.images.read(int(self.ids[id]))

    def cut(self, ids: np.ndarray, cuts: Sequence[tuple[BoxMaker, int]]) -> tuple[list[Tensor], np.ndarray]:
        return self.images.cut(self.ids[ids], cuts)


def evenly_spaced(images: Images, most: int) -> Subset:
    """At most this many of the images, evenly spaced by id: always the same ones."""
    return Subset(images, np.linspace(0, len(images) - 1, min(len(images), most)).astype(np.int64))


def fingerprint_ids(images: Images) -> list[int]:
    """The images whose content goes into the fingerprint of a data set."""
    return evenly_spaced(images, FINGERPRINTED).ids.tolist()


def source_of(images: Images) -> Images:
    """The data set from which a subset, or a subset of a subset, was taken."""
    while isinstance(images, Subset):
        images = images.images
    return images


def store_of(images: Images) -> DecodedStore | None:
    """The cache of decoded images of a data set; None if there is none."""
    source = source_of(images)
    return source.decoded if isinstance(source, FileImages) else None


def source_ids(images: Images) -> np.ndarray:
    """The ids `(N,)` that images have in the data set they were taken from."""
    return source_ids(images.images)[images.ids] if isinstance(images, Subset) else np.arange(len(images))
