"""Checkpoints: written atomically with a checksum, pruned, and read without executing anything that is in them."""

import logging
import re
from pathlib import Path
from typing import Any

import torch

from csml.data.cache import atomic_write, checksum
from csml.errors import CsmlError, reason

log = logging.getLogger("csml")

_NAME = re.compile(r"epoch-(\d+)-step-(\d+)\.pt")


def save_checkpoint(folder: Path, state: dict[str, Any], epoch: int, step: int, keep: int) -> Path:
    """Write `state` (tensors, numbers, strings in dicts and lists) and remove all but the `keep` newest."""
    path = folder / f"epoch-{epoch:04d}-step-{step:06d}.pt"
    try:
        _sum_of(path).unlink(missing_ok=True)  # of an earlier file of this name, should there be one
        with atomic_write(path) as temporary:
            torch.save(state, temporary)
            digest = checksum(temporary)
        with atomic_write(_sum_of(path)) as temporary:
            temporary.write_text(digest)
    except (OSError, RuntimeError) as error:
        raise CsmlError(f"the checkpoint {path} cannot be written ({error}); the ones before it are kept") from error
    leftovers = folder.glob(".epoch-*")  # of a save that was killed; we are the only writer
    for old in [*_newest_first(folder)[keep:], *leftovers]:
        old.unlink(missing_ok=True)
        _sum_of(old).unlink(missing_ok=True)
    return path


def newest_checkpoint(folder: Path) -> Path | None:
    """The checkpoint that is furthest on."""
    return next(iter(_newest_first(folder)), None)


def load_newest(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """The checkpoint that is furthest on of those that are whole; damaged ones are named. None: there is none."""
    paths = _newest_first(folder)
    damage: CsmlError | None = None
    for path in paths:
        try:
            return path, load_checkpoint(path)
        except CsmlError as error:
            log.warning("%s%s", error, "; the one before it is taken" if path != paths[-1] else "")
            damage = error
    if damage is not None:
        raise damage
    return None


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read a state on the CPU; only tensors and plain values are accepted, and only what was written."""
    if _sum_of(path).exists() and _sum_of(path).read_text() != checksum(path):
        raise CsmlError(f"the checkpoint {path} is damaged: its checksum is wrong")
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise CsmlError(f"the checkpoint {path} cannot be read ({reason(error)})") from error
    return state


def _sum_of(path: Path) -> Path:
    return path.with_name(path.name + ".sum")


def _newest_first(folder: Path) -> list[Path]:
    found = [(match.groups(), path) for path in folder.glob("*.pt") if (match := _NAME.fullmatch(path.name))]
    return [path for _, path in sorted(found, key=lambda item: tuple(map(int, item[0])), reverse=True)]
