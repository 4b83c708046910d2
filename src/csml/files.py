"""Atomic writes, checksums and the cache folder."""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from csml.errors import CsmlError, reason


def cache_dir() -> Path:
    """The cache folder: `$CSML_CACHE`, else `$XDG_CACHE_HOME/csml`, else `~/.cache/csml`."""
    if chosen := os.environ.get("CSML_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "csml"


def cache_key(*values: object) -> str:
    """A short hash of the values: it changes when any of them does."""
    return hashlib.blake2b(repr(values).encode(), digest_size=10).hexdigest()


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces `path` if the block succeeds, so readers never see an incomplete file."""
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
    """BLAKE2b hash of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def save_array(path: Path, array: np.ndarray) -> None:
    """Write a .npy file that can be memory-mapped."""
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        np.save(file, array)


def write_json(path: Path, value: Any, indent: int | None = 2) -> None:
    """Write a value as JSON, atomically."""
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(value, indent=indent) + "\n")


def read_json(path: Path) -> Any:
    """The value in a JSON file; a damaged file is one clear line."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CsmlError(f"{path} cannot be read as JSON ({reason(error)})") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
