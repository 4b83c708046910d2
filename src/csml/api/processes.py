"""Worker processes that share work: start them, watch them, and stop them together."""

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from csml.config import HardwareConfig
from csml.console import log_is_shown
from csml.distributed.launch import is_launched, joined_key
from csml.distributed.world import OWN_PROCESSES, cores_each
from csml.errors import CsmlError
from csml.runs.interruption import Interrupted, StopSignals

T = TypeVar("T")

_POLL_SECONDS = 0.05
_GRACE_SECONDS = 60.0
"""How long other workers may take to notice that one has failed before they are killed."""
_START_GRACE_SECONDS = 3.0
"""The same while workers start: others may be about to fail for the same reason."""


def in_processes(function: Callable[..., T], hardware: HardwareConfig, *arguments: Any) -> T:
    """Call `function(*arguments)` here, or in `hardware.devices` worker processes of this machine.

    The caller's process is never replaced: workers are fresh Python child processes, and what rank 0 returns or raises
    is returned or raised here. Where torchrun or srun has started several processes already, this one is a worker.

    Args:
        function: a function of a module, which the workers import.
        hardware: its `devices` says how many workers.
        arguments: anything that can be pickled.
    """
    if hardware.devices == 1 or is_launched():
        return function(*arguments)
    from torch._C._distributed_c10d import TCPStore

    with tempfile.TemporaryDirectory(prefix="csml-") as folder:
        call = Path(folder) / "call.pickle"
        try:
            call.write_bytes(pickle.dumps((function, arguments, log_is_shown(), sys.argv)))
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise CsmlError(
                f"hardware.devices: the data cannot be sent to worker processes ({error}); give a folder, or devices 1"
            ) from error
        # The store outlives every worker, so no port is guessed or used twice.
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        joined = [joined_key(rank) for rank in range(hardware.devices)]
        workers: list[subprocess.Popen[bytes]] = []
        try:
            with StopSignals() as signals:  # before the first worker starts, so that a signal leaves none behind
                for rank in range(hardware.devices):
                    workers.append(_start(call, rank, hardware.devices, store.port))
                _watch(workers, signals, lambda: store.check(joined))
        finally:
            dead = [worker.poll() for worker in workers]
            for worker in workers:
                worker.kill()
                worker.wait()
        if signals.caught and not any(read_answer(call, rank) for rank in range(hardware.devices)):
            raise KeyboardInterrupt
        return _answer(call, dead)


def _start(call: Path, rank: int, size: int, port: int) -> "subprocess.Popen[bytes]":
    environment = {
        **os.environ,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        OWN_PROCESSES: str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # the store is ours; no worker opens one
    }
    environment.setdefault("OMP_NUM_THREADS", str(cores_each(size)))
    # A session of its own: Ctrl-C reaches this process only, which passes it on once.
    return subprocess.Popen(
        [sys.executable, "-m", "csml.api.worker", str(call)], env=environment, start_new_session=True
    )


def _watch(workers: "list[subprocess.Popen[bytes]]", signals: StopSignals, all_joined: Callable[[], bool]) -> None:
    """Wait for all workers; pass a signal on to all; do not let the others wait for one that failed."""
    passed_on, until = False, None
    while None in (codes := [worker.poll() for worker in workers]):  # poll all: the first may wait for the last
        if signals.caught and not passed_on:
            passed_on = True
            if not all_joined():  # nothing to save yet
                return
            for worker in workers:
                worker.send_signal(signals.caught)
        if until is None and any(codes):
            # Before all have joined, the others wait for it to start, and cannot know that it never will.
            until = time.monotonic() + (_GRACE_SECONDS if all_joined() else _START_GRACE_SECONDS)
        if until is not None and time.monotonic() > until:
            return
        time.sleep(_POLL_SECONDS)


def _answer(call: Path, codes: list[int | None]) -> Any:
    """What rank 0 returned, or raise the first cause of the failure.

    Args:
        call: the file beside which the answers are.
        codes: exit code of each worker; None if this process ended it.
    """
    answers = [read_answer(call, rank) for rank in range(len(codes))]
    # A process that lost another one is a consequence, not the cause.
    for kind in ("error", "interrupted", "stopped", "lost"):
        for answer in answers:
            if answer is not None and answer[0] == kind:
                if kind == "interrupted":
                    raise Interrupted(*answer[1])
                if kind == "stopped":
                    raise KeyboardInterrupt
                if kind == "lost" and (dead := _killed(codes, answers)):
                    raise CsmlError(f"{dead}; {answer[1]}")
                alone = kind == "error" and sum(one is not None and one[:2] == answer[:2] for one in answers) == 1
                raise CsmlError(f"process {answers.index(answer)} of {len(codes)}: {answer[1]}" if alone else answer[1])
    for rank, code in enumerate(codes):
        if code or (code == 0 and answers[rank] is None):
            raise CsmlError(_died(rank, codes))
    assert answers[0] is not None
    return answers[0][1]


def _killed(codes: list[int | None], answers: list[Any]) -> str | None:
    """The worker that a signal killed before it could answer: the cause of the other failures."""
    found = (rank for rank, code in enumerate(codes) if (code or 0) < 0 and answers[rank] is None)
    return next((_died(rank, codes) for rank in found), None)


def _died(rank: int, codes: list[int | None]) -> str:
    code = codes[rank] or 0
    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    if code == -signal.SIGKILL:
        how += ", perhaps for want of memory"
    return f"worker process {rank} of {len(codes)} died ({how})"


def write_answer(call: Path, rank: int, kind: str, value: Any) -> None:
    """Write the outcome of a worker for `in_processes`: a `value`, or how it ended (kinds: see `_answer`)."""
    path = call.with_name(f"answer-{rank}.pickle")
    path.with_suffix(".part").write_bytes(pickle.dumps((kind, value)))
    path.with_suffix(".part").rename(path)


def read_answer(call: Path, rank: int) -> tuple[str, Any] | None:
    path = call.with_name(f"answer-{rank}.pickle")
    return pickle.loads(path.read_bytes()) if path.exists() else None
