"""`synthetic`: drawn scenes with several objects, their boxes and masks; drawn once per size and kept in the cache."""

from pathlib import Path

import numpy as np

from csml.data.arrays import Arrays, cached_arrays
from csml.data.cache import atomic_write, cache_dir
from csml.data.images import ArrayImages
from csml.data.scenes.annotations import Annotations, Objects, Scenes, encode_masks
from csml.progress import watched
from csml.synthetic import CLASS_NAMES, draw_scene

_VERSION = 2
"""Raise it when the drawings change, so that caches are made again."""
_PARTS = ("train", "val")
_MOST_OBJECTS = 4
_RADIUS = (0.08, 0.16)
"""of an object, as a share of the picture"""
_FIELDS = ("sizes", "starts", "boxes", "labels", "crowd", "difficult", "counts", "offsets")


def drawn_scenes(size: int, train: int, val: int, seed: int = 0) -> tuple[Scenes, Scenes]:
    """`train` and `val` scenes of `size` pixels; scene i of a part does not depend on how many there are."""
    name = f"scenes-v{_VERSION}-{size}px-{train}+{val}-seed{seed}"
    folder = cache_dir() / "arrays" / name

    def make() -> dict[str, Arrays]:
        return {
            part: _draw_part(size, count, (seed, number), folder / f"{part}-objects.npz")
            for number, (part, count) in enumerate(zip(_PARTS, (train, val), strict=True))
        }

    images = cached_arrays(name, make, _PARTS)
    first, second = (
        _scenes(pictures, folder / f"{part}-objects.npz") for pictures, part in zip(images, _PARTS, strict=True)
    )
    return first, second


def _scenes(images: ArrayImages, file: Path) -> Scenes:
    with np.load(file) as stored:
        annotations = Annotations(**{name: stored[name] for name in _FIELDS})
    ids = tuple(range(1, len(images) + 1))
    return Scenes(images, annotations, CLASS_NAMES, ids, tuple(range(1, len(CLASS_NAMES) + 1)))


def _draw_part(size: int, count: int, seed: tuple[int, int], file: Path) -> Arrays:
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
