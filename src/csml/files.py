"""Atomic writes, checksums and the cache folder."""

import contextlib
import errno
import hashlib
import json
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from csml.errors import CsmlError, disk_problem, reason

if TYPE_CHECKING:  # settings are parsed without numpy
    import numpy as np

_MOST_JSON = 2**31


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
        with _as_disk_error(path):
            yield temporary
        os.chmod(temporary, 0o666 & ~_umask())
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def _as_disk_error(path: Path) -> Iterator[None]:
    """Libraries tell of a full disk in their own ways; here it is always an OSError that names the file."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from error
    except Exception as error:
        code = re.search(r"\(os error (\d+)\)", str(error))  # safetensors, in Rust's words
        if code is None and not any(word in str(error) for word in ("PytorchStreamWriter", "inline_container")):
            raise
        number = int(code[1]) if code else errno.ENOSPC
        raise OSError(number, os.strerror(number), str(path)) from error


def require_file(path: str | os.PathLike[str]) -> None:
    """Raise OSError unless `path` is a regular file: a pipe would be waited for, and a device may never end."""
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def read_file(path: Path, most: int) -> bytes:
    """The content of a file that may come from anywhere; OSError if it is no regular file or has over `most` bytes."""
    require_file(path)
    if os.stat(path).st_size > most:
        raise OSError(errno.EFBIG, f"it is larger than {most // 2**20:,} MB", str(path))
    return path.read_bytes()


def checksum(path: Path) -> str:
    """BLAKE2b hash of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def open_matrix(path: Path, dtype: "type[np.generic]", shape: tuple[int, ...]) -> "np.ndarray":
    """A .npy file in memory, to be filled. Its space is taken now: a disk that is full later would end the process."""
    import numpy as np

    matrix = np.lib.format.open_memmap(path, "w+", dtype, shape)
    with path.open("rb+") as file:
        os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return matrix


def save_array(path: Path, array: "np.ndarray") -> None:
    """Write a .npy file that can be memory-mapped."""
    import numpy as np

    with atomic_write(path) as temporary, temporary.open("wb") as file:
        np.save(file, array)


def write_json(path: Path, value: Any, indent: int | None = 2) -> None:
    """Write a value as JSON, atomically."""
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(value, indent=indent) + "\n")


def read_json(path: Path) -> Any:
    """The value in a JSON file; a damaged file is one clear line."""
    try:
        return json.loads(read_file(path, _MOST_JSON).decode("utf-8"))
    except OSError as error:
        raise CsmlError(f"{path} cannot be read ({disk_problem(error)})") from error
    except (ValueError, RecursionError) as error:
        raise CsmlError(f"{path} cannot be read as JSON ({reason(error)})") from error


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; anything else is one clear line."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise CsmlError(f"{path} holds a {type(value).__name__} instead of an object in braces")
    return value


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
