"""Data sets that are made once and then memory-mapped: pixels, labels and class names under one name in the cache."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from csml.data.cache import atomic_write, cache_dir, save_array
from csml.data.images import ArrayImages


@dataclass(frozen=True)
class Arrays:
    """A data set as it is made."""

    pixels: np.ndarray
    """uint8 `(N, H, W, 3)`"""
    labels: np.ndarray
    """int64 `(N,)`"""
    classes: tuple[str, ...]


def cached_arrays(name: str, make: Callable[[], dict[str, Arrays]], parts: tuple[str, ...]) -> list[ArrayImages]:
    """The `parts` of the data set `name`; `make` is called, for all of them, only if one is missing in the cache."""
    folder = cache_dir() / "arrays" / name
    if not all((folder / f"{part}.json").exists() for part in parts):
        for part, arrays in make().items():
            _save(folder, part, arrays)
    return [_load(folder, part, title=f"{name}/{part}") for part in parts]


def _save(folder: Path, part: str, arrays: Arrays) -> None:
    save_array(folder / f"{part}-pixels.npy", arrays.pixels)
    save_array(folder / f"{part}-labels.npy", arrays.labels)
    # Written last: a part whose class names are there is whole.
    with atomic_write(folder / f"{part}.json") as temporary:
        temporary.write_text(json.dumps({"classes": arrays.classes}))


def _load(folder: Path, part: str, title: str) -> ArrayImages:
    classes = tuple(json.loads((folder / f"{part}.json").read_text())["classes"])
    pixels = np.load(folder / f"{part}-pixels.npy", mmap_mode="r")
    return ArrayImages(pixels, np.load(folder / f"{part}-labels.npy"), classes, title)
