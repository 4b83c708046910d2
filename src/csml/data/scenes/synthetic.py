"""`--data synthetic` for detection: scenes with several objects, drawn once per size and kept in the cache."""

from pathlib import Path

import numpy as np

from csml.data.arrays import Arrays, cached_arrays
from csml.data.images import ArrayImages
from csml.data.scenes.annotations import Annotations, Objects, Scenes, encode_masks
from csml.files import atomic_write, cache_dir
from csml.progress import watched
from csml.synthetic import CLASS_NAMES, draw_scene

_VERSION = 2
"""Increase this when the drawings change, so that caches are rebuilt."""
_SPLITS = ("train", "val")
_MOST_OBJECTS = 4
_RADIUS = (0.08, 0.16)
"""range of an object's radius, as a share of the image size"""
_FIELDS = ("sizes", "starts", "boxes", "labels", "crowd", "difficult", "counts", "offsets")


def synthetic_scenes(size: int, train: int, val: int, seed: int = 0) -> tuple[Scenes, Scenes]:
    """`train` training and `val` test scenes of `size` pixels; scene i of a split does not depend on the counts."""
    name = f"scenes-v{_VERSION}-{size}px-{train}+{val}-seed{seed}"
    folder = cache_dir() / "arrays" / name

    def make() -> dict[str, Arrays]:
        return {
            split: _draw_split(size, count, (seed, number), folder / f"{split}-objects.npz")
            for number, (split, count) in enumerate(zip(_SPLITS, (train, val), strict=True))
        }

    images = cached_arrays(name, make, _SPLITS)
    first, second = (
        _scenes(pictures, folder / f"{split}-objects.npz") for pictures, split in zip(images, _SPLITS, strict=True)
    )
    return first, second


def _scenes(images: ArrayImages, file: Path) -> Scenes:
    with np.load(file) as stored:
        annotations = Annotations(**{name: stored[name] for name in _FIELDS})
    ids = tuple(range(1, len(images) + 1))
    return Scenes(images, annotations, CLASS_NAMES, ids, tuple(range(1, len(CLASS_NAMES) + 1)))


def _draw_split(size: int, count: int, seed: tuple[int, int], file: Path) -> Arrays:
    pixels = np.empty((count, size, size, 3), np.uint8)
    objects = []
    for i in watched(range(count), f"drawing {count:,} scenes", total=count):
        rng = np.random.default_rng([*seed, i])
        labels = rng.integers(len(CLASS_NAMES), size=rng.integers(1, _MOST_OBJECTS + 1))
        scene = draw_scene(size, labels, rng, radius=_RADIUS, min_visible=0.5)
        pixels[i] = scene.image
        none = np.zeros(len(scene.labels), bool)
        objects.append(Objects(scene.boxes, scene.labels, none, none, list(encode_masks(scene.masks))))
    packed = Annotations.pack([(size, size)] * count, objects)
    with atomic_write(file) as temporary, temporary.open("wb") as opened:
        np.savez(opened, **{name: getattr(packed, name) for name in _FIELDS})
    return Arrays(pixels, np.zeros(count, np.int64), CLASS_NAMES)
