"""Checkpoints: written atomically with a checksum, pruned, and read without executing pickled code."""

import logging
import shutil
from pathlib import Path
from typing import Any

import torch

from csml.errors import CsmlError, disk_problem, machine_problem, reason
from csml.files import atomic_write, checksum
from csml.runs.directory import checkpoint_file, checkpoint_files

log = logging.getLogger("csml")


def save_checkpoint(folder: Path, state: dict[str, Any], epoch: int, step: int, keep: int) -> Path:
    """Write `state` (tensors, numbers and strings in dicts and lists) and remove all but the `keep` newest."""
    path = checkpoint_file(folder, epoch, step)
    try:
        _checksum_file(path).unlink(missing_ok=True)  # belongs to an older checkpoint with this name
        with atomic_write(path) as temporary:
            torch.save(state, temporary)
            digest = checksum(temporary)
        with atomic_write(_checksum_file(path)) as temporary:
            temporary.write_text(digest)
    except (OSError, RuntimeError) as error:
        if (
            isinstance(error, RuntimeError) and machine_problem(error) is not None
        ):  # a data worker that died this moment
            raise
        why = disk_problem(error) if isinstance(error, OSError) else reason(error)
        kept = "; the ones before it are kept" if checkpoint_files(folder) else "; there is none before it"
        raise CsmlError(f"the checkpoint {path} cannot be written ({why}){kept}") from error
    leftovers = folder.glob(".epoch-*")  # from a killed process; this one is the only writer
    for old in [*checkpoint_files(folder)[keep:], *leftovers]:
        old.unlink(missing_ok=True)
        _checksum_file(old).unlink(missing_ok=True)
    return path


def newest_checkpoint(folder: Path) -> Path | None:
    """The checkpoint with the most steps."""
    return next(iter(checkpoint_files(folder)), None)


def load_newest(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """The newest checkpoint that is not damaged, and its state; None if there is no checkpoint.

    Damaged checkpoints are named in the log. If all are damaged, the error of the oldest is raised.
    """
    paths = checkpoint_files(folder)
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
    """Read a state to the CPU; only tensors and plain values are accepted, and the checksum must match."""
    if _checksum_file(path).exists() and _checksum_file(path).read_text() != checksum(path):
        raise CsmlError(f"the checkpoint {path} is damaged: its checksum is wrong")
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise CsmlError(f"the checkpoint {path} cannot be read ({reason(error)})") from error
    return state


def remove_checkpoints(folder: Path) -> None:
    """Delete all checkpoints and their folder."""
    shutil.rmtree(folder, ignore_errors=True)


def _checksum_file(path: Path) -> Path:
    return path.with_name(path.name + ".sum")
