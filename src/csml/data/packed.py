"""Image files packed into a few large Arrow files, memory-mapped, with random access by id; local or remote.

PACK/
  pack.json                 splits (train, val), classes, and rows, size and checksum of each shard
  train-names.arrow         path and label of every image of a split
  train-00000.arrow, …      the image files
"""

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from csml.data.bit_depth import COLOUR, Reading
from csml.data.images import UNLABELED, FileImages, FolderImages
from csml.errors import CsmlError, reason
from csml.extras import extra
from csml.files import atomic_write, cache_dir, cache_key, checksum
from csml.progress import watched

with extra("pack", "a pack of images"):
    import fsspec
    import pyarrow as pa

INDEX = "pack.json"
_FORMAT = 1
_FILES = pa.schema([("content", pa.large_binary())])
_NAMES = pa.schema([("path", pa.binary()), ("label", pa.int64())])


@dataclass(frozen=True)
class Shard:
    """One Arrow file."""

    file: str
    rows: int
    size: int
    checksum: str


class Pack:
    """A folder of shards. The shards of a remote pack are downloaded to the cache on first access.

    Args:
        place: a folder, or a URL that fsspec understands (s3://…, gs://…, https://…, memory://…).
    """

    def __init__(self, place: str) -> None:
        self.place = place.rstrip("/")
        self.remote = "://" in place
        self.local = cache_dir() / "packs" / cache_key(self.place) if self.remote else Path(place).expanduser()
        try:
            with fsspec.open(f"{self.place}/{INDEX}" if self.remote else str(self.local / INDEX), "rb") as file:
                self.index: dict[str, Any] = json.loads(file.read())
        except FileNotFoundError as error:
            raise CsmlError(f"data: there is no {INDEX} in {place}; create a pack with csml pack") from error
        except Exception as error:  # remote stores raise all kinds of exceptions
            raise CsmlError(f"data: {place}/{INDEX} cannot be read ({reason(error)})") from error
        if not isinstance(self.index, dict) or self.index.get("format") != _FORMAT:
            raise CsmlError(f"data: {place} is not a pack of this version of csml")
        try:
            for split in self.index["parts"]:
                self.shards(split), self.names(split)
        except (KeyError, TypeError) as error:
            raise CsmlError(f"data: {place}/{INDEX} is damaged ({reason(error)}); pack again") from error

    def shards(self, split: str) -> list[Shard]:
        return [Shard(**row) for row in self.index["parts"][split]["shards"]]

    def names(self, split: str) -> Shard:
        return Shard(**self.index["parts"][split]["names"])

    def table(self, shard: Shard, schema: pa.Schema) -> pa.RecordBatch:
        """The single record batch of a shard, memory-mapped and fully validated, because the file is not trusted."""
        path = self._fetched(shard)
        try:
            with pa.memory_map(str(path)) as file, pa.ipc.open_file(file) as opened:
                if opened.schema != schema or opened.num_record_batches != 1:
                    raise CsmlError(f"data: {path} is not a shard of a pack")
                batch = opened.get_batch(0)
                batch.validate(full=True)
        except (OSError, pa.ArrowInvalid) as error:
            raise CsmlError(f"data: {path} cannot be read ({reason(error)}); pack again") from error
        if batch.num_rows != shard.rows:
            raise CsmlError(f"data: {path} holds {batch.num_rows} images instead of {shard.rows}; pack again")
        return batch

    def _fetched(self, shard: Shard) -> Path:
        if Path(shard.file).name != shard.file:
            raise CsmlError(f"data: {self.place}/{INDEX} names a file outside of its folder: {shard.file}")
        path = self.local / shard.file
        if self.remote and not path.exists():
            try:
                with fsspec.open(f"{self.place}/{shard.file}", "rb") as remote, atomic_write(path) as temporary:
                    digest = _copy(remote, temporary)
                    if digest != shard.checksum:
                        raise CsmlError(f"data: {self.place}/{shard.file} is damaged: its checksum is wrong")
            except CsmlError:
                raise
            except Exception as error:
                raise CsmlError(f"data: {self.place}/{shard.file} cannot be downloaded ({reason(error)})") from error
        return path


class PackedImages(FileImages):
    """The images of one split of a pack."""

    def __init__(self, pack: Pack, split: str, unlabeled: bool = False, reading: Reading = COLOUR) -> None:
        self.pack, self.split, self.unlabeled, self.reading = pack, split, unlabeled, reading
        self._names = pack.table(pack.names(split), _NAMES)
        self.shards = pack.shards(split)
        self.starts = np.concatenate([[0], np.cumsum([shard.rows for shard in self.shards])])
        self._open_shards: dict[int, pa.RecordBatch] = {}
        self.classes: tuple[str, ...] = () if unlabeled else tuple(pack.index["parts"][split]["classes"])
        none = np.full(len(self), UNLABELED, dtype=np.int64)
        self.labels = self._names["label"].to_numpy().copy() if self.classes else none

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedImages, (self.pack, self.split, self.unlabeled, self.reading)  # a worker maps the same files

    def __len__(self) -> int:
        return int(self.starts[-1])

    def name(self, id: int) -> str:
        return os.fsdecode(self._names["path"][id].as_py())

    def fingerprint(self) -> str:
        """The fingerprint of the packed folder, so that a run can be resumed with either of the two."""
        return str(self.pack.index["parts"][self.split]["fingerprint"])

    def source(self, id: int) -> BytesIO:
        number = int(np.searchsorted(self.starts, id, side="right")) - 1
        if number not in self._open_shards:
            self._open_shards[number] = self.pack.table(self.shards[number], _FILES)
        return BytesIO(self._open_shards[number]["content"][id - int(self.starts[number])].as_buffer())


def write_pack(splits: dict[str, FolderImages], target: Path, shard_bytes: int) -> int:
    """Pack the images of all splits into `target`; returns the number of bytes written."""
    total = 0
    index: dict[str, Any] = {"format": _FORMAT, "parts": {}}
    for split, images in splits.items():
        shards = []
        groups = list(_groups(images, shard_bytes))
        for number, ids in enumerate(watched(groups, f"packing {split}", total=len(groups))):
            file = target / f"{split}-{number:05d}.arrow"
            contents = [images.path(id).read_bytes() for id in ids]
            shards.append(_write(file, pa.record_batch([pa.array(contents, pa.large_binary())], schema=_FILES)))
            total += shards[-1].size
        paths = [os.fsencode(images.name(id)) for id in range(len(images))]
        names = pa.record_batch([pa.array(paths, pa.binary()), pa.array(images.labels)], schema=_NAMES)
        index["parts"][split] = {
            "fingerprint": images.fingerprint(),
            "classes": images.classes,
            "names": vars(_write(target / f"{split}-names.arrow", names)),
            "shards": [vars(shard) for shard in shards],
        }
    with atomic_write(target / INDEX) as temporary:  # written last: a pack with an index is complete
        temporary.write_text(json.dumps(index, indent=1))
    return total


def _groups(images: FolderImages, shard_bytes: int) -> Iterator[list[int]]:
    """Yield ids of consecutive images of about `shard_bytes` bytes in total."""
    group: list[int] = []
    size = 0
    for id in range(len(images)):
        group.append(id)
        size += images.path(id).stat().st_size
        if size >= shard_bytes:
            yield group
            group, size = [], 0
    if group:
        yield group


def _write(path: Path, batch: pa.RecordBatch) -> Shard:
    with atomic_write(path) as temporary:
        with pa.OSFile(str(temporary), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
            writer.write_batch(batch)
        return Shard(path.name, batch.num_rows, temporary.stat().st_size, checksum(temporary))


def _copy(remote: Any, path: Path) -> str:
    """Copy an open remote file to `path`; returns its BLAKE2b hash."""
    digest = hashlib.blake2b()
    with path.open("wb") as local:
        while block := remote.read(2**20):
            digest.update(block)
            local.write(block)
    return digest.hexdigest()
