"""Atomic writes, checksums and the cache folder."""

import contextlib
import errno
import fcntl
import glob
import hashlib
import json
import os
import re
import stat
import tempfile
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from csml.errors import CsmlError, disk_problem, reason

if TYPE_CHECKING:  # settings are parsed without numpy
    import numpy as np

_MOST_JSON = 2**31
_ZEROS = 2**20
"""Bytes that are written at a time to allocate a file."""
_PART = ".part-"
"""Part of the name of every temporary file."""


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
    """Yield a temporary path that replaces `path` if the block succeeds, so readers never see an incomplete file.

    Temporary files of the same file left by a killed process are removed: their locks ended with the process.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f".{glob.escape(path.name)}{_PART}*"):
        _remove_if_left(left)
    handle, temporary = _locked_temporary(path)
    try:
        with _as_disk_error(path):
            yield temporary
        os.chmod(temporary, 0o666 & ~_umask())
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
        os.close(handle)


def is_leftover(path: Path) -> bool:
    """Whether this is the name of a temporary file of `atomic_write`; if no process is writing, a killed one left
    it."""
    return path.name.startswith(".") and _PART in path.name


def _locked_temporary(path: Path) -> tuple[int, Path]:
    """A new file beside `path`, and its descriptor, which holds a lock on it if the disk supports locks."""
    while True:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}{_PART}", suffix=path.suffix)
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(handle).st_nlink:
            return handle, Path(name)
        os.close(handle)  # another writer of this file removed it as a leftover before it was locked


def _remove_if_left(path: Path) -> None:
    """Remove a temporary file whose writer is dead; keep it if that is unknown."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDWR)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
        finally:
            os.close(handle)


_TORCH_CANNOT_WRITE = ("PytorchStreamWriter", "inline_container", "iostream error")
"""What torch.save says of a full disk, depending on which write fails."""


@contextlib.contextmanager
def _as_disk_error(path: Path) -> Iterator[None]:
    """Turn the various errors of libraries about a full disk into an OSError that names the file."""
    try:
        yield
    except OSError as error:
        short = error.errno is None and re.fullmatch(r"\d+ requested and \d+ written", str(error))  # raised by numpy
        number = errno.ENOSPC if short else error.errno
        if number is None or error.filename is not None:
            raise
        raise OSError(number, os.strerror(number), str(path)) from error
    except Exception as error:
        code = re.search(r"\(os error (\d+)\)", str(error))  # safetensors, in Rust's wording
        if code is None and not any(words in str(error) for words in _TORCH_CANNOT_WRITE):
            raise
        number = int(code[1]) if code else errno.ENOSPC
        raise OSError(number, os.strerror(number), str(path)) from error


def exists_or_creatable(path: Path) -> bool:
    """Whether a file or folder exists. Raises OSError if none can be created because a parent is a file, or because of
    a broken or circular link, for which `Path.exists` only returns False."""
    try:
        os.stat(path)
    except FileNotFoundError:
        if path.is_symlink():
            raise OSError(errno.ENOENT, "it is a link that leads nowhere", str(path)) from None
        return False
    return True


def require_file(path: str | os.PathLike[str]) -> None:
    """Raise OSError unless `path` is a regular file: reading a pipe would block, and a device may never end."""
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def read_file(path: Path, most: int) -> bytes:
    """The content of an untrusted file; OSError if it is not a regular file or larger than `most` bytes."""
    require_file(path)
    if os.stat(path).st_size > most:
        raise OSError(errno.EFBIG, f"it is larger than {most // 2**20:,} MB", str(path))
    return path.read_bytes()


def remove_oldest(files: Iterable[Path], most: int, keep: Container[Path] = ()) -> None:
    """Remove the files that were changed longest ago until the rest take at most `most` bytes; those in `keep` stay."""
    found = []
    for file in files:
        with contextlib.suppress(OSError):  # another process may remove it
            status = file.stat()
            found.append((status.st_mtime, status.st_size, file))
    excess = sum(size for _, size, _ in found) - most
    for _, size, file in sorted(found):
        if excess <= 0:
            break
        if file not in keep:
            file.unlink(missing_ok=True)
            excess -= size


def checksum(path: Path) -> str:
    """BLAKE2b hash of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def open_matrix(path: Path, dtype: "type[np.generic]", shape: tuple[int, ...]) -> "np.ndarray":
    """A memory-mapped .npy file to fill. Its space is allocated now: a full disk later would kill the process."""
    import numpy as np

    matrix = np.lib.format.open_memmap(path, "w+", dtype, shape)
    with path.open("rb+") as file:
        _allocate(file, matrix.offset, path.stat().st_size)
    return matrix


def _allocate(file: BinaryIO, start: int, end: int) -> None:
    """Allocate the bytes from `start` to `end` of a file, which are zeros."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, end)
        return
    zeros = bytes(_ZEROS)  # macOS: a longer file is sparse until something is written
    file.seek(start)
    for place in range(start, end, _ZEROS):
        file.write(zeros[: end - place])


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
    """The value in a JSON file; a damaged file raises a one-line CsmlError."""
    try:
        return json.loads(read_file(path, _MOST_JSON).decode("utf-8"))
    except OSError as error:
        raise CsmlError(f"{path} cannot be read ({disk_problem(error)})") from error
    except (ValueError, RecursionError) as error:
        raise CsmlError(f"{path} cannot be read as JSON ({reason(error)})") from error


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; anything else raises a one-line CsmlError."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise CsmlError(f"{path} holds a {type(value).__name__} instead of an object in braces")
    return value


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
