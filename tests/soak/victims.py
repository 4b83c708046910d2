"""Commands in processes of their own: forked from one that has imported csml, so that a start costs little, or cold."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from started import Started


class Victim(Protocol):
    """A running command of one or more processes."""

    @property
    def processes(self) -> list[int]: ...

    @property
    def printed(self) -> str: ...

    def codes(self) -> list[int | None]:
        """Exit code of each process; None while it runs."""


class Forked:
    """Processes of one command; two of them are ranks, as torchrun would start them.

    Args:
        words: of the command.
        environment: added to this one's.
        ranks: number of processes.
        first: runs in the first of them before the command.
    """

    def __init__(
        self, words: list[str], environment: dict[str, str], ranks: int, first: Callable[[], Any] | None
    ) -> None:
        port = str(_free_port())
        self._started = []
        for rank in range(ranks):
            world = {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "LOCAL_WORLD_SIZE": str(ranks),
            }
            world |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            mine = environment | (world if ranks > 1 else {})
            self._started.append(Started(*words, environment=mine, first=first if rank == 0 else None))

    @property
    def processes(self) -> list[int]:
        return [int(one.pid or 0) for one in self._started]

    @property
    def printed(self) -> str:
        return "".join(one.printed for one in self._started)

    def codes(self) -> list[int | None]:
        return [one.returncode for one in self._started]


class Cold:
    """A command as a user starts it: most of the first seconds is import."""

    def __init__(self, words: list[str], environment: dict[str, str], log: Path) -> None:
        self._log = log
        with log.open("wb") as file:
            command = [sys.executable, "-m", "csml", *words]
            self._process = subprocess.Popen(
                command, stdout=file, stderr=file, env={**os.environ, **environment}, start_new_session=True
            )

    @property
    def processes(self) -> list[int]:
        return [self._process.pid]

    @property
    def printed(self) -> str:
        return self._log.read_text(errors="replace")

    def codes(self) -> list[int | None]:
        return [self._process.poll()]


def wait(victim: Victim, seconds: float) -> bool:
    """Whether all of its processes have ended within this time."""
    until = time.monotonic() + seconds
    while None in victim.codes():
        if time.monotonic() >= until:
            return False
        time.sleep(0.01)
    return True


def end(victim: Victim) -> None:
    """Kill what is left of it."""
    for process, code in zip(victim.processes, victim.codes(), strict=True):
        if code is None:
            os.kill(process, signal.SIGKILL)
    wait(victim, 10)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
