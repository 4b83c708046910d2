"""`synthetic`: the embedded data set, one object per picture, drawn once per size and kept in the cache."""

import numpy as np

from csml.data.arrays import Arrays, cached_arrays
from csml.data.images import ArrayImages
from csml.progress import watched
from csml.synthetic import CLASS_NAMES, draw_scene

_VERSION = 1
"""Raise it when the drawings change, so that caches are made again."""
_PARTS = ("train", "val")


def synthetic(size: int, train: int, val: int, seed: int = 0) -> tuple[ArrayImages, ArrayImages]:
    """`train` and `val` pictures of `size` pixels; picture i of a part does not depend on how many there are."""
    name = f"synthetic-v{_VERSION}-{size}px-{train}+{val}-seed{seed}"

    def make() -> dict[str, Arrays]:
        counts = dict(zip(_PARTS, (train, val), strict=True))
        return {part: _draw_part(size, count, (seed, number)) for number, (part, count) in enumerate(counts.items())}

    first, second = cached_arrays(name, make, _PARTS)
    return first, second


def _draw_part(size: int, count: int, seed: tuple[int, int]) -> Arrays:
    pixels = np.empty((count, size, size, 3), np.uint8)
    labels = np.empty(count, np.int64)
    for i in watched(range(count), f"drawing {count:,} pictures", total=count):
        rng = np.random.default_rng([*seed, i])
        labels[i] = i % len(CLASS_NAMES)  # classes are balanced; batches are shuffled anyway
        pixels[i] = draw_scene(size, labels[i : i + 1], rng).image
    return Arrays(pixels, labels, CLASS_NAMES)
