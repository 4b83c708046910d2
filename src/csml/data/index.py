"""The index of a folder: all image paths in two arrays, cached, checked for changes, and shared by all workers.

A million Python strings take 100 MB in every worker that touches them. One byte buffer and one offset array, memory-
mapped from the cache, are in memory once.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from csml.data.decode import EXTENSIONS
from csml.errors import CsmlError
from csml.files import atomic_write, cache_dir, cache_key, save_array

_FORMAT = 1


@dataclass(frozen=True)
class FolderIndex:
    """Relative paths of N images, sorted. An image's id is its place in this order, the same on every machine."""

    root: Path
    store: Path
    """the cache folder with the arrays"""
    buffer: np.ndarray
    """uint8, the concatenated UTF-8 paths"""
    offsets: np.ndarray
    """int64 `(N + 1,)`, the start of each path"""

    def __reduce__(self) -> tuple[Any, ...]:
        return _open_index, (self.root, self.store)  # a worker maps the same files instead of receiving a copy

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def name(self, id: int) -> str:
        """The path relative to the root, with forward slashes."""
        return os.fsdecode(self.buffer[self.offsets[id] : self.offsets[id + 1]].tobytes())

    def path(self, id: int) -> Path:
        return self.root / self.name(id)


def index_folder(root: Path) -> FolderIndex:
    """Find all images below `root`. Links to folders are followed once; hidden files and folders are skipped."""
    root = root.resolve()
    store = cache_dir() / "folders" / cache_key(_FORMAT, str(root), sorted(EXTENSIONS))
    if not _unchanged(root, store):
        _write_index(root, store)
    return _open_index(root, store)


def _open_index(root: Path, store: Path) -> FolderIndex:
    buffer = np.load(store / "paths.npy", mmap_mode="r")
    offsets = np.load(store / "offsets.npy", mmap_mode="r")
    return FolderIndex(root, store, buffer, offsets)


def _unchanged(root: Path, store: Path) -> bool:
    """Whether the cached index is up to date. Adding, removing or renaming a file changes the time of its folder, so
    only folders are checked."""
    try:
        with np.load(store / "folders.npz") as seen:
            folders, times = seen["folders"], seen["times"]
            return all(
                os.stat(root / os.fsdecode(folder)).st_mtime_ns == time
                for folder, time in zip(folders.tolist(), times.tolist(), strict=True)
            )
    except (OSError, ValueError, KeyError):
        return False


def _write_index(root: Path, store: Path) -> None:
    folders: list[bytes] = []
    times: list[int] = []
    paths: list[bytes] = []
    visited: set[tuple[int, int]] = set()
    pending = [b""]
    top = os.fsencode(root)
    while pending:
        folder = pending.pop()
        place = os.path.join(top, folder) if folder else top
        try:
            status = os.stat(place)
            if (status.st_dev, status.st_ino) in visited:  # a link to a parent would loop forever
                continue
            visited.add((status.st_dev, status.st_ino))
            entries = list(os.scandir(place))
        except OSError as error:
            raise CsmlError(f"data: cannot read the folder {os.fsdecode(place)} ({error.strerror})") from error
        folders.append(folder)
        times.append(status.st_mtime_ns)
        for entry in entries:
            if entry.name.startswith(b"."):
                continue
            relative = folder + b"/" + entry.name if folder else entry.name
            if entry.is_dir():
                pending.append(relative)
            elif os.path.splitext(entry.name)[1].lower().decode("ascii", "replace") in EXTENSIONS:
                paths.append(relative)
    paths.sort()
    lengths = np.fromiter((len(path) for path in paths), dtype=np.int64, count=len(paths))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    save_array(store / "paths.npy", np.frombuffer(b"".join(paths), dtype=np.uint8))
    save_array(store / "offsets.npy", offsets)
    # Written last: while this file is missing or outdated, the index is created again.
    with atomic_write(store / "folders.npz") as temporary, temporary.open("wb") as file:
        np.savez(file, folders=np.array(folders, dtype=np.bytes_), times=np.array(times, dtype=np.int64))
