"""Where things that can be made again are kept."""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np


def cache_dir() -> Path:
    """`$CSML_CACHE`, else `$XDG_CACHE_HOME/csml`, else `~/.cache/csml`."""
    if chosen := os.environ.get("CSML_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "csml"


def cache_key(*parts: object) -> str:
    """A short name that changes when any part does."""
    return hashlib.blake2b(repr(parts).encode(), digest_size=10).hexdigest()


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends well: readers never see half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        os.chmod(temporary, 0o666 & ~_umask())
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def checksum(path: Path) -> str:
    """Of a file, as it is."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def save_array(path: Path, array: np.ndarray) -> None:
    """Write a .npy file that can be memory-mapped."""
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        np.save(file, array)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
