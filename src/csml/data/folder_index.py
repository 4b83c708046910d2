"""The index of a folder: all image paths in two arrays, cached, checked for changes, and shared by all workers.

A million Python strings take 100 MB in every worker that touches them. One byte buffer and one offset array, memory-
mapped from the cache, are in memory once.
"""

import hashlib
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from csml.data.decode import AVIF, HEIC, image_suffixes
from csml.errors import CsmlError
from csml.files import atomic_write, cache_dir, cache_key, read_json, save_array, write_json
from csml.release import install_command

_FORMAT = 2
_SHOWN = 5
"""Largest number of suffixes in a message."""


@dataclass(frozen=True)
class FolderIndex:
    """Paths of N images, relative to a folder. An image's id is its position in this order, the same on every machine:
    sorted if the folder was searched, else as listed."""

    root: Path
    store: Path
    """the cache folder with the arrays"""
    buffer: np.ndarray
    """uint8, the concatenated UTF-8 paths"""
    offsets: np.ndarray
    """int64 `(N + 1,)`, the start of each path"""
    given: Path
    """the folder as given by the user, absolute; it may be a link"""

    def __reduce__(self) -> tuple[Any, ...]:
        # A worker maps the same files instead of receiving a copy.
        return _open_index, (self.root, self.store, self.given)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def name(self, id: int) -> str:
        """The path relative to the root, with forward slashes."""
        return os.fsdecode(self.buffer[self.offsets[id] : self.offsets[id + 1]].tobytes())

    def path(self, id: int) -> Path:
        return self.root / self.name(id)

    def fingerprint(self) -> str:
        """A hash of all paths in their order."""
        digest = hashlib.blake2b(self.buffer.data, digest_size=10)
        digest.update(self.offsets.data)
        return digest.hexdigest()


def index_folder(root: Path) -> FolderIndex:
    """Find all images below `root`. Links to folders are followed once; hidden files and folders are skipped."""
    given, root = root.absolute(), root.resolve()
    store = cache_dir() / "folders" / cache_key(_FORMAT, str(root), sorted(image_suffixes()))
    if not _unchanged(root, store):
        _write_index(root, store)
    return _open_index(root, store, given)


def index_paths(root: Path, paths: list[bytes]) -> FolderIndex:
    """The index of given paths, relative to `root` or absolute, in this order."""
    store = cache_dir() / "lists" / cache_key(_FORMAT, str(root), hashlib.blake2b(b"\0".join(paths)).digest())
    if not (store / "offsets.npy").exists():
        _save_paths(store, paths)
    return _open_index(root, store, root)


def left_out(index: FolderIndex) -> str | None:
    """A line about the files of a folder that this installation cannot read as images; None if there are none."""
    return describe_left_out(read_json(index.store / "left_out.json"))


def describe_left_out(counts: dict[str, int]) -> str | None:
    """The line for file counts by suffix, such as `left out 12 files: 10 .txt, 2 .heic (pip install …)`."""
    if not counts:
        return None
    ways = dict.fromkeys(HEIC, f" ({install_command('heic')})") | dict.fromkeys(AVIF, " (needs Pillow 11.3)")
    ordered = sorted(counts.items(), key=lambda item: (item[0] not in ways, -item[1], item[0]))
    named = [f"{count:,} {suffix or 'without a suffix'}{ways.get(suffix, '')}" for suffix, count in ordered[:_SHOWN]]
    total, rest = sum(counts.values()), sum(count for _, count in ordered[_SHOWN:])
    more = [f"{rest:,} others"] if rest else []
    return f"left out {total:,} file{'s' if total > 1 else ''}: {', '.join(named + more)}"


def suffix_of(name: bytes) -> str:
    """The lower-case suffix of a file name, with its dot."""
    return os.path.splitext(name)[1].lower().decode("ascii", "replace")


def _open_index(root: Path, store: Path, given: Path) -> FolderIndex:
    buffer = np.load(store / "paths.npy", mmap_mode="r")
    offsets = np.load(store / "offsets.npy", mmap_mode="r")
    return FolderIndex(root, store, buffer, offsets, given)


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
    others: Counter[str] = Counter()
    suffixes = image_suffixes()
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
            if _is_folder(entry):
                pending.append(relative)
            elif (suffix := suffix_of(entry.name)) in suffixes:
                paths.append(relative)
            else:
                others[suffix] += 1
    paths.sort()
    write_json(store / "left_out.json", others)
    _save_paths(store, paths)
    # Written last: while this file is missing or outdated, the index is created again.
    with atomic_write(store / "folders.npz") as temporary, temporary.open("wb") as file:
        np.savez(file, folders=np.array(folders, dtype=np.bytes_), times=np.array(times, dtype=np.int64))


def _is_folder(entry: "os.DirEntry[bytes]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _save_paths(store: Path, paths: list[bytes]) -> None:
    lengths = np.fromiter((len(path) for path in paths), dtype=np.int64, count=len(paths))
    save_array(store / "paths.npy", np.frombuffer(b"".join(paths), dtype=np.uint8))
    save_array(store / "offsets.npy", np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
