"""Masks in PNG files: a value or a colour per object (Pascal, Penn-Fudan, CVAT), or a file per object (nuclei)."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image
from pycocotools import mask as rle

from csml.data.decode import as_decode_error
from csml.data.scenes.annotations import Rle, encode_masks
from csml.data.scenes.raw_annotations import RawObject, Repairs

_VOID = 255
"""Border pixels in Pascal's masks."""
_OPAQUE = {"LA": "L", "RGBA": "RGB"}
"""Modes with an alpha channel, which is not part of the value, and the modes without it."""
_LEAST_OVERLAP = 0.5
"""Smallest IoU at which a box and the box around a mask count as the same object."""


def read_values(path: Path, colours: bool = False) -> np.ndarray:
    """int64 `(H, W)`: palette indices or grey values; for a colour image 65 536 R + 256 G + B.

    Args:
        path: the file.
        colours: return the colours of a palette instead of its indices.

    Raises:
        DecodeError: the file cannot be read.
    """
    with as_decode_error(path), Image.open(path) as image:
        if image.mode in ("RGB", "RGBA") or colours:
            return np.asarray(image.convert("RGB")).astype(np.int64) @ np.array([65_536, 256, 1])
        return np.asarray(image.convert("L") if image.mode == "LA" else image).astype(np.int64)


def read_instances(path: Path) -> dict[int, Rle]:
    """The mask of each value except 0 (the background) and Pascal's border; by value."""
    values = read_values(path)
    border = values.max(initial=0) == _VOID and len(np.unique(values)) > 2
    found = [value for value in np.unique(values).tolist() if value != 0 and not (border and value == _VOID)]
    if not found:
        return {}
    return dict(zip(found, encode_masks(np.stack([values == value for value in found])), strict=True))


def read_single(path: Path) -> Rle | None:
    """The mask of a file with one object: everything that is not 0; None if it is empty."""
    with as_decode_error(path), Image.open(path) as image:
        values = np.asarray(image.convert(_OPAQUE.get(image.mode, image.mode)))
    covered = values != 0 if values.ndim == 2 else (values != 0).any(axis=2)  # (H, W)
    return encode_masks(covered[None])[0] if covered.any() else None


def with_masks(objects: Sequence[RawObject], masks: dict[int, Rle], name: str, repairs: Repairs) -> list[RawObject]:
    """Objects with their masks: object number n, from 1, has the value n. A mask away from its box is left out."""
    matched = []
    for number, one in enumerate(objects, start=1):
        mask = masks.get(number)
        if mask is not None and one.box is not None:
            x0, y0, x1, y1 = one.box
            overlap = rle.iou([rle.toBbox(mask).tolist()], [[x0, y0, x1 - x0, y1 - y0]], [0])[0][0]
            if overlap < _LEAST_OVERLAP:
                repairs.add("mask lies elsewhere than its box, left out", name, f"object {number}")
                mask = None
        matched.append(one if mask is None else replace(one, segmentation=mask))
    return matched
