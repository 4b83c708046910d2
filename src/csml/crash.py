"""Unexpected errors: one line for the user, and a crash report with traceback and versions for the maintainers."""

import os
import platform
import tempfile
import time
import traceback
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from csml.errors import reason
from csml.files import cache_dir
from csml.release import DISTRIBUTION

_PACKAGES = (
    *(DISTRIBUTION, "torch", "torchvision", "lightning-fabric", "timm"),
    *("numpy", "pillow", "safetensors", "pyyaml"),
)
_VARIABLES = ("RANK", "WORLD_SIZE", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "CSML_CACHE", "CSML_MEASURE")


def crashed(error: BaseException, words: Sequence[str]) -> str:
    """Write a crash report, and return the line for the user with its path.

    The report has the traceback, versions, machine and the given settings, but no image content.
    """
    what = f"internal error: {type(error).__name__}: {reason(error)}"[:300]
    try:
        return f"{what}; please report it with {_write(error, words)}"
    except OSError as problem:
        return f"{what}; no crash report could be written ({reason(problem)})"


def _write(error: BaseException, words: Sequence[str]) -> Path:
    folder = cache_dir() / "crashes"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:  # the cache may be what failed
        folder = Path(tempfile.gettempdir())
    name = time.strftime("crash-%Y%m%d-%H%M%S-")
    handle, path = tempfile.mkstemp(prefix=name, suffix=".txt", dir=folder)
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write("\n".join(_lines(error, words)) + "\n")
    return Path(path)


def _lines(error: BaseException, words: Sequence[str]) -> list[str]:
    variables = [f"{name}={os.environ[name]}" for name in _VARIABLES if name in os.environ]
    return [
        f"command: {' '.join(map(repr, words))}"[:10_000],
        f"time: {time.strftime('%Y-%m-%dT%H:%M:%S%z')}",
        f"python {platform.python_version()}, {platform.platform()}",
        ", ".join(f"{package} {_version(package)}" for package in _PACKAGES),
        f"environment: {' '.join(variables) or 'nothing of csml'}",
        "",
        "".join(traceback.format_exception(error)),
    ]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
