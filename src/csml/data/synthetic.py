"""`--data synthetic`: generated images with one object each, drawn once per size and kept in the cache."""

import numpy as np

from csml.data.arrays import Arrays, cached_arrays
from csml.data.images import ArrayImages
from csml.progress import watched
from csml.synthetic import CLASS_NAMES, draw_scene

_VERSION = 1
"""Increase this when the drawings change, so that caches are rebuilt."""
_SPLITS = ("train", "val")


def synthetic(size: int, train: int, val: int, seed: int = 0) -> tuple[ArrayImages, ArrayImages]:
    """`train` training and `val` validation images of `size` pixels; image i of a split is independent of them."""
    name = f"synthetic-v{_VERSION}-{size}px-{train}+{val}-seed{seed}"

    def make() -> dict[str, Arrays]:
        counts = dict(zip(_SPLITS, (train, val), strict=True))
        return {split: _draw_split(size, count, (seed, number)) for number, (split, count) in enumerate(counts.items())}

    first, second = cached_arrays(name, make, _SPLITS)
    return first, second


def _draw_split(size: int, count: int, seed: tuple[int, int]) -> Arrays:
    pixels = np.empty((count, size, size, 3), np.uint8)
    labels = np.empty(count, np.int64)
    for i in watched(range(count), f"drawing {count:,} pictures", total=count):
        rng = np.random.default_rng([*seed, i])
        labels[i] = i % len(CLASS_NAMES)  # classes are balanced; batches are shuffled anyway
        pixels[i] = draw_scene(size, labels[i : i + 1], rng).image
    return Arrays(pixels, labels, CLASS_NAMES)
