"""When one process fails, it leaves a note in the shared store, and the others report which one failed and why."""

import os
import socket
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from csml.distributed.launch import is_lost
from csml.errors import CsmlError, one_line

_WAIT = 2.0
"""Seconds for the others to report that they are alive, and for the failed one to leave its note."""
_PATIENCE = timedelta(seconds=5)


class ProcessLost(CsmlError):
    """Another process of the run no longer answers."""


def note_failure(error: BaseException) -> None:
    """Tell the other processes why this one ends; does nothing if there are none or they cannot be reached."""
    if dist.is_initialized():
        with suppress(Exception):
            _store().set(_key("failed", dist.get_rank()), f"{_here()} failed: {one_line(error, 500)}")


def failed_process(error: BaseException) -> str | None:
    """The process that failed, and why, as far as known; None if this error has another cause."""
    if not dist.is_initialized() or not isinstance(error, RuntimeError) or not is_lost(error):
        return None
    others = [rank for rank in range(dist.get_world_size()) if rank != dist.get_rank()]
    try:
        store = _store()
        store.set(_key("alive", dist.get_rank()), "")
        time.sleep(_WAIT)
        notes = [store.get(_key("failed", rank)).decode() for rank in others if store.check([_key("failed", rank)])]
        if notes:
            return notes[0]
        gone = [rank for rank in others if not store.check([_key("alive", rank)])]
    except Exception:  # the store ended with the process that holds it
        return "process 0, which the others meet at, no longer answers; perhaps it was killed"
    names = ", ".join(map(str, gone)) or "another"
    return f"process {names} of {len(others) + 1} no longer answers; perhaps it was killed, or its machine is down"


def _here() -> str:
    return f"process {dist.get_rank()} of {dist.get_world_size()} ({socket.gethostname()}, pid {os.getpid()})"


def _key(what: str, rank: int) -> str:
    return f"csml/{what}/{rank}"


def _store() -> Any:
    store = dist.distributed_c10d._get_default_store()
    store.set_timeout(_PATIENCE)
    return store
