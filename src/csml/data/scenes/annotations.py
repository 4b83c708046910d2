"""Objects on N images: boxes, classes and masks as a few flat arrays, which loader workers share."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pycocotools import mask as rle

from csml.data.cache import cache_key
from csml.data.images import Images

_FEW = 0.02
"""Share of the objects that may lack a mask where masks are learnt; those are left out."""

Rle = dict[str, Any]
"""A mask as pycocotools holds it: `size` (height, width) and compressed `counts`."""


class Objects(NamedTuple):
    """The O objects of one image."""

    boxes: np.ndarray
    """float32 `(O, 4)`: x0, y0, x1, y1 in pixels, from the left edge of the first to the right edge of the last"""
    labels: np.ndarray
    """int64 `(O,)`"""
    crowd: np.ndarray
    """bool `(O,)`: a region of many, neither learnt nor missed"""
    difficult: np.ndarray
    """bool `(O,)`: learnt, but not missed"""
    masks: list[Rle | None]
    """of each object, where it has one"""


@dataclass(frozen=True)
class Annotations:
    """The objects of all images, one image after the other; T objects in all."""

    sizes: np.ndarray
    """int64 `(N, 2)`: height and width of each image"""
    starts: np.ndarray
    """int64 `(N + 1,)`: where the objects of each image start"""
    boxes: np.ndarray
    labels: np.ndarray
    crowd: np.ndarray
    difficult: np.ndarray
    counts: np.ndarray
    """uint8, the compressed masks one after the other"""
    offsets: np.ndarray
    """int64 `(T + 1,)`: where each mask starts; one without bytes is not there"""

    @classmethod
    def pack(cls, sizes: Sequence[tuple[int, int]], objects: Sequence[Objects]) -> "Annotations":
        """Lay the objects of every image out flat."""
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
        """int64 `(N,)`: objects of each image that are learnt."""
        of = np.repeat(np.arange(len(self)), np.diff(self.starts))
        return np.bincount(of[~self.crowd], minlength=len(self))

    def without_mask(self) -> np.ndarray:
        """int64: ids of the images of the objects that are learnt but have no mask, one for each."""
        of = np.repeat(np.arange(len(self)), np.diff(self.starts))
        return of[~self.crowd & (np.diff(self.offsets) == 0)]

    def have_masks(self) -> bool:
        """Of nearly all objects: one without would teach the detector that it is background."""
        return len(self.without_mask()) <= _FEW * int((~self.crowd).sum()) and len(self.counts) > 0

    def subset(self, ids: np.ndarray) -> "Annotations":
        return Annotations.pack([tuple(size) for size in self.sizes[ids].tolist()], [self.objects(id) for id in ids])


@dataclass(frozen=True)
class Scenes:
    """Images, what is on them, and what the files they come from call it."""

    images: Images
    annotations: Annotations
    classes: tuple[str, ...]
    image_ids: tuple[int | str, ...]
    """of each image, as written to detections"""
    category_ids: tuple[int, ...]
    """of each class, likewise"""
    truth: Path | None = None
    """a COCO file to be scored against as it is"""

    def __len__(self) -> int:
        return len(self.annotations)

    def fingerprint(self) -> str:
        """Changes when a scene, or what is on it, would be another."""
        arrays = [array.tobytes() for array in vars(self.annotations).values()]
        return cache_key(self.images.fingerprint(), self.classes, *arrays)


def decode_masks(masks: Sequence[Rle], size: tuple[int, int]) -> np.ndarray:
    """uint8 `(O, H, W)`."""
    if not masks:
        return np.zeros((0, *size), np.uint8)
    return np.ascontiguousarray(rle.decode(list(masks)).transpose(2, 0, 1))


def encode_masks(masks: np.ndarray) -> list[Rle]:
    """Bool or 0/1 `(O, H, W)` → compressed."""
    columns = np.asfortranarray(masks.astype(np.uint8).transpose(1, 2, 0))  # (H, W, O), column by column
    encoded: list[Rle] = rle.encode(columns)
    return encoded


def _starts(lengths: list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
