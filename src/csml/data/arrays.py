"""Data sets that are created once, stored in the cache under a name, and then memory-mapped."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from csml.data.images import ArrayImages
from csml.files import atomic_write, cache_dir, save_array


@dataclass(frozen=True)
class Arrays:
    """One split of a data set in memory."""

    pixels: np.ndarray
    """uint8 `(N, H, W, 3)`"""
    labels: np.ndarray
    """int64 `(N,)`"""
    classes: tuple[str, ...]


def cached_arrays(name: str, make: Callable[[], dict[str, Arrays]], splits: tuple[str, ...]) -> list[ArrayImages]:
    """The `splits` of the data set `name`. If one is missing in the cache, `make` is called to create all of them."""
    folder = cache_dir() / "arrays" / name
    if not all((folder / f"{split}.json").exists() for split in splits):
        for split, arrays in make().items():
            _save(folder, split, arrays)
    return [_load(folder, split, title=f"{name}/{split}") for split in splits]


def _save(folder: Path, split: str, arrays: Arrays) -> None:
    save_array(folder / f"{split}-pixels.npy", arrays.pixels)
    save_array(folder / f"{split}-labels.npy", arrays.labels)
    # Written last, so that its existence means that the split is complete.
    with atomic_write(folder / f"{split}.json") as temporary:
        temporary.write_text(json.dumps({"classes": arrays.classes}))


def _load(folder: Path, split: str, title: str) -> ArrayImages:
    classes = tuple(json.loads((folder / f"{split}.json").read_text())["classes"])
    pixels = np.load(folder / f"{split}-pixels.npy", mmap_mode="r")
    return ArrayImages(pixels, np.load(folder / f"{split}-labels.npy"), classes, title)
