"""Checkpoints: written atomically, pruned, and read without executing anything that is in them."""

import re
from pathlib import Path
from typing import Any

import torch

from csml.data.cache import atomic_write
from csml.errors import CsmlError

_NAME = re.compile(r"epoch-(\d+)-step-(\d+)\.pt")


def save_checkpoint(folder: Path, state: dict[str, Any], epoch: int, step: int, keep: int) -> Path:
    """Write `state` (tensors, numbers, strings in dicts and lists) and remove all but the `keep` newest."""
    path = folder / f"epoch-{epoch:04d}-step-{step:06d}.pt"
    try:
        with atomic_write(path) as temporary:
            torch.save(state, temporary)
    except (OSError, RuntimeError) as error:
        raise CsmlError(f"the checkpoint {path} cannot be written ({error}); the ones before it are kept") from error
    leftovers = folder.glob(".epoch-*")  # of a save that was killed; we are the only writer
    for old in [*_newest_first(folder)[keep:], *leftovers]:
        old.unlink(missing_ok=True)
    return path


def newest_checkpoint(folder: Path) -> Path | None:
    """The checkpoint that is furthest on."""
    return next(iter(_newest_first(folder)), None)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read a state on the CPU; only tensors and plain values are accepted."""
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise CsmlError(f"the checkpoint {path} cannot be read ({str(error).splitlines()[0]})") from error
    return state


def _newest_first(folder: Path) -> list[Path]:
    found = [(match.groups(), path) for path in folder.glob("*.pt") if (match := _NAME.fullmatch(path.name))]
    return [path for _, path in sorted(found, key=lambda item: tuple(map(int, item[0])), reverse=True)]
