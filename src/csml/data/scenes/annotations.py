"""The objects of N images: boxes, classes and masks in a few flat arrays, which loader workers share."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pycocotools import mask as rle

from csml.data.images import Images
from csml.files import cache_key

_FEW = 0.02
"""Share of the objects that may lack a mask when masks are trained; these objects are left out."""

Rle = dict[str, Any]
"""A mask in pycocotools' form: `size` (height, width) and compressed `counts`."""


class Objects(NamedTuple):
    """The O objects of one image."""

    boxes: np.ndarray
    """float32 `(O, 4)`: x0, y0, x1, y1 in pixels, from the outer edge of the first pixel to that of the last"""
    labels: np.ndarray
    """int64 `(O,)`"""
    crowd: np.ndarray
    """bool `(O,)`: a region with many objects; not used for training, and not a miss in a test"""
    difficult: np.ndarray
    """bool `(O,)`: used for training, but not a miss in a test"""
    masks: list[Rle | None]
    """one per object, None if it has no mask"""


@dataclass(frozen=True)
class Annotations:
    """The objects of all images, concatenated; T objects in total."""

    sizes: np.ndarray
    """int64 `(N, 2)`: height and width of each image"""
    starts: np.ndarray
    """int64 `(N + 1,)`: the first object of each image"""
    boxes: np.ndarray
    labels: np.ndarray
    crowd: np.ndarray
    difficult: np.ndarray
    counts: np.ndarray
    """uint8, the concatenated compressed masks"""
    offsets: np.ndarray
    """int64 `(T + 1,)`: the start of each mask; a mask of zero bytes means that the object has none"""

    @classmethod
    def pack(cls, sizes: Sequence[tuple[int, int]], objects: Sequence[Objects]) -> "Annotations":
        """Concatenate the objects of all images."""
        masks = [b"" if mask is None else mask["counts"] for each in objects for mask in each.masks]
        return cls(
            sizes=np.array(sizes, dtype=np.int64).reshape(-1, 2),
            starts=_starts([len(each.labels) for each in objects]),
            boxes=np.concatenate([each.boxes for each in objects] or [np.empty((0, 4), np.float32)]),
            labels=np.concatenate([each.labels for each in objects] or [np.empty(0, np.int64)]),
            crowd=np.concatenate([each.crowd for each in objects] or [np.empty(0, bool)]),
            difficult=np.concatenate([each.difficult for each in objects] or [np.empty(0, bool)]),
            counts=np.frombuffer(b"".join(masks), dtype=np.uint8),
            offsets=_starts([len(mask) for mask in masks]),
        )

    def __len__(self) -> int:
        return len(self.sizes)

    def objects(self, id: int) -> Objects:
        rows = slice(self.starts[id], self.starts[id + 1])
        masks = [self._mask(id, row) for row in range(rows.start, rows.stop)]
        return Objects(self.boxes[rows], self.labels[rows], self.crowd[rows], self.difficult[rows], masks)

    def _mask(self, id: int, row: int) -> Rle | None:
        start, end = self.offsets[row : row + 2].tolist()
        return {"size": self.sizes[id].tolist(), "counts": self.counts[start:end].tobytes()} if end > start else None

    def count_learnable(self) -> np.ndarray:
        """int64 `(N,)`: number of objects of each image that are used for training."""
        return np.bincount(self._image_ids()[~self.crowd], minlength=len(self))

    def without_mask(self) -> np.ndarray:
        """int64: for each object that is used for training but has no mask, the id of its image."""
        return self._image_ids()[~self.crowd & (np.diff(self.offsets) == 0)]

    def _image_ids(self) -> np.ndarray:
        """int64 `(T,)`: the image of each object."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    def have_masks(self) -> bool:
        """Whether nearly all objects have masks; the others are left out and thus treated as background."""
        return len(self.without_mask()) <= _FEW * int((~self.crowd).sum()) and len(self.counts) > 0

    def subset(self, ids: np.ndarray) -> "Annotations":
        return Annotations.pack([tuple(size) for size in self.sizes[ids].tolist()], [self.objects(id) for id in ids])


@dataclass(frozen=True)
class Scenes:
    """Images, their objects, and the ids that the annotation files use."""

    images: Images
    annotations: Annotations
    classes: tuple[str, ...]
    image_ids: tuple[int | str, ...]
    """the id of each image in the annotation file and in written detections"""
    category_ids: tuple[int, ...]
    """the id of each class, likewise"""
    truth: Path | None = None
    """the COCO file that detections are scored against directly, if there is one"""

    def __len__(self) -> int:
        return len(self.annotations)

    def fingerprint(self) -> str:
        """A hash that changes when an id refers to another scene or when its objects change."""
        arrays = [array.tobytes() for array in vars(self.annotations).values()]
        return cache_key(self.images.fingerprint(), self.classes, *arrays)


def decode_masks(masks: Sequence[Rle], size: tuple[int, int]) -> np.ndarray:
    """Compressed masks → uint8 `(O, H, W)`."""
    if not masks:
        return np.zeros((0, *size), np.uint8)
    return np.ascontiguousarray(rle.decode(list(masks)).transpose(2, 0, 1))


def encode_masks(masks: np.ndarray) -> list[Rle]:
    """Masks `(O, H, W)`, bool or 0/1 → compressed masks."""
    columns = np.asfortranarray(masks.astype(np.uint8).transpose(1, 2, 0))  # (H, W, O), column-major
    encoded: list[Rle] = rle.encode(columns)
    return encoded


def _starts(lengths: list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
