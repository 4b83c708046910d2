"""Tar files and WebDataset shards: images are read from within the archive, in any order; nothing is unpacked.

The offsets of all images in an archive are found once and cached, so training reads as fast as from files.
"""

import json
import os
import tarfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from csml.data.bit_depth import COLOUR, Reading
from csml.data.decode import image_suffixes
from csml.data.folder_index import index_paths, suffix_of
from csml.data.images import UNLABELED, FileImages
from csml.errors import CsmlError, reason
from csml.files import cache_dir, cache_key, read_json, save_array, write_json

COMPRESSED = (".tgz", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst", ".tbz2", ".txz")
_FORMAT = 1
_LABEL_KEYS = ("label", "class", "category", "cls", "class_name")
_LONGEST_LABEL = 2**20
"""Largest size in bytes of a file that may hold a label."""
_OPEN_FILES = 128
"""Largest number of archives that one process keeps open."""


@dataclass(frozen=True)
class Contents:
    """The images of one archive."""

    names: list[str]
    places: np.ndarray
    """int64 `(N, 2)`: offset and size of each file in the archive"""
    texts: list[str | None]
    """class names from .cls and .json files beside the images"""
    left_out: dict[str, int]
    """other files by suffix"""


def read_contents(path: Path) -> Contents:
    """The images of an archive, from the cache if the archive is unchanged."""
    try:
        status = path.stat()
    except OSError as error:
        raise CsmlError(f"data: {path} cannot be read ({error.strerror})") from error
    state = [status.st_size, status.st_mtime_ns]
    store = cache_dir() / "tars" / cache_key(_FORMAT, str(path.resolve()), sorted(image_suffixes()))
    if not (store / "contents.json").exists() or read_json(store / "contents.json")["state"] != state:
        names, places, texts, others = _scan(path)
        save_array(store / "places.npy", places)
        # Written last, with the state of the archive that it describes.
        write_json(store / "contents.json", {"state": state, "names": names, "texts": texts, "others": others}, None)
    facts = read_json(store / "contents.json")
    return Contents(facts["names"], np.load(store / "places.npy"), facts["texts"], facts["others"])


def _scan(path: Path) -> tuple[list[str], np.ndarray, list[str | None], dict[str, int]]:
    if path.name.lower().endswith(COMPRESSED):
        raise CsmlError(f"data: {path} is compressed, so its images cannot be read in any order; decompress it first")
    suffixes = image_suffixes()
    names, places, keys = [], [], []
    labels: dict[str, str] = {}
    others: Counter[str] = Counter()
    try:
        with tarfile.open(path, "r:", errorlevel=1) as archive:
            for member in archive:
                name = _plain_name(member.name)
                file = name.rpartition("/")[2]
                if not member.isreg() or file.startswith(".") or member.sparse is not None:
                    continue
                suffix = suffix_of(os.fsencode(file))
                if suffix in suffixes:
                    names.append(name)
                    places.append((member.offset_data, member.size))
                    keys.append(_key(name))
                elif suffix in (".cls", ".json") and member.size <= _LONGEST_LABEL:
                    opened = archive.extractfile(member)
                    text = _label(suffix, opened.read() if opened is not None else b"")
                    if text is not None:
                        labels[_key(name)] = text
                else:
                    others[suffix] += 1
            if path.stat().st_size % tarfile.BLOCKSIZE:
                raise ValueError("it is cut off")
    except (tarfile.TarError, OSError, EOFError, ValueError) as error:
        raise CsmlError(f"data: {path} cannot be read as a tar file ({reason(error)})") from error
    places_array = np.array(places, np.int64).reshape(-1, 2)
    return names, places_array, [labels.get(key) for key in keys], dict(others)


def _plain_name(name: str) -> str:
    """A path inside the archive, without `.`, `..` and a leading slash: only a name, never opened."""
    return "/".join(part for part in name.split("/") if part not in ("", ".", ".."))


def _key(name: str) -> str:
    """The key shared by the files of one WebDataset sample: the path up to the first dot of the file name."""
    folder, slash, file = name.rpartition("/")
    return folder + slash + file.partition(".")[0]


def _label(suffix: str, content: bytes) -> str | None:
    """The class in a .cls or .json file; None if there is none."""
    text = content.decode("utf-8", "replace").strip()
    if suffix == ".cls":
        return text or None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, dict):
        value = next((value[key] for key in _LABEL_KEYS if key in value), None)
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) and str(value) else None


class TarImages(FileImages):
    """The images of one or more archives, in archive order.

    Args:
        paths: the archives.
        contents: the result of `read_contents` for each.
        reading: channels and depth.
    """

    def __init__(self, paths: Sequence[Path], contents: Sequence[Contents], reading: Reading = COLOUR) -> None:
        self.paths, self.reading = tuple(paths), reading
        self.starts = np.cumsum([0, *(len(found.names) for found in contents)])
        self.places = np.concatenate([found.places for found in contents])  # (N, 2)
        # Cached, like the index of a folder: a list of a million names would be copied into every worker.
        # Prefixed with the name of the archive if there are several, because each may number its files from the start.
        titles = [f"{path.name}/" if len(paths) > 1 else "" for path in paths]
        names = [title + name for title, found in zip(titles, contents, strict=True) for name in found.names]
        self.names = index_paths(Path(), [os.fsencode(name) for name in names])
        self.labels = np.full(len(self), UNLABELED, np.int64)
        self.classes: tuple[str, ...] = ()
        self._descriptors: dict[int, int] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_descriptors": {}}  # each process opens the archives itself

    def __del__(self) -> None:
        for descriptor in getattr(self, "_descriptors", {}).values():
            os.close(descriptor)

    def __len__(self) -> int:
        return int(self.starts[-1])

    def name(self, id: int) -> str:
        return self.names.name(id)

    def fingerprint(self) -> str:
        return cache_key(self.names.fingerprint(), self.places[:, 1].tobytes())

    def source(self, id: int) -> BytesIO:
        offset, size = self.places[id].tolist()
        archive = int(np.searchsorted(self.starts, id, side="right")) - 1
        try:
            return BytesIO(os.pread(self._descriptor(archive), size, offset))
        except OSError:  # the archive is gone: the picture cannot be read
            return BytesIO()

    def _descriptor(self, archive: int) -> int:
        """An open file. Reads at an offset do not move a shared position, so forked workers can share it."""
        if archive not in self._descriptors:
            if len(self._descriptors) >= _OPEN_FILES:
                os.close(self._descriptors.pop(next(iter(self._descriptors))))
            self._descriptors[archive] = os.open(self.paths[archive], os.O_RDONLY)
        return self._descriptors[archive]
