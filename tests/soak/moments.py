"""The moment of a disturbance, counted in changes of files. This runs inside of the disturbed process."""

import contextlib
import os
import random
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

_CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "sqlite3.connect"}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
FILLER = "filler"
DISTURBANCES = ("SIGKILL", "SIGTERM", "full disk", "dead worker")


class Watch:
    """Hears every change of a file on a disk, and disturbs its own process at one of them.

    Args:
        disk: where changes count.
        notes: a file, elsewhere; without a disturbance every change is noted in it, else the one it comes at.
        how: the disturbance; None: only take notes.
        number: the change at which it comes, from 1.
        delay: seconds after the change until a SIGKILL; other disturbances come at once.
    """

    def __init__(self, disk: Path, notes: Path, how: str | None, number: int = 0, delay: float = 0.0) -> None:
        self.disk, self.notes, self.how, self.number, self.delay = str(disk), str(notes), how, number, delay
        self.process, self.count, self.busy = os.getpid(), 0, False

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            if not isinstance(arguments[2], int) or not arguments[2] & _WRITES:
                return
        elif event not in _CHANGES:
            return
        place = arguments[0]
        if self.busy or os.getpid() != self.process or not isinstance(place, str | bytes | os.PathLike):
            return
        path = os.path.abspath(os.fsdecode(place))
        if not path.startswith(self.disk):
            return
        self.count += 1
        if self.how is None or self.count == self.number:
            self.busy = True
            with open(self.notes, "a") as file:
                file.write(f"{event} {os.path.relpath(path, self.disk)}\n")
            if self.how is not None:
                disturb(self.how, self.process, Path(self.disk), self.delay)
            self.busy = False


def watch(*settings: Any) -> None:
    """Begin to hear; settings as those of `Watch`."""
    sys.addaudithook(Watch(*settings).hear)


def disturb(how: str, process: int, disk: Path, delay: float = 0.0, worker: int | None = None) -> None:
    """Disturb a process. Where it has no worker that could die, it dies itself."""
    if how == "full disk":
        fill(disk)
    elif how == "SIGTERM":
        os.kill(process, signal.SIGTERM)
    elif how == "dead worker":
        found = [worker] if worker is not None else children_of(process)
        os.kill(random.choice(found) if found else process, signal.SIGKILL)
    elif delay:  # its default action ends the process as SIGKILL does, exactly then
        if signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL:  # only the main thread may set it
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, delay)
    else:
        os.kill(process, signal.SIGKILL)


def fill(disk: Path) -> None:
    """Leave at most some kilobytes of a disk."""
    left = random.choice([0, 0, 4, 16, 64, 200]) << 10
    with (disk / FILLER).open("wb") as file:
        while (room := shutil.disk_usage(disk).free - left) > 0:
            with contextlib.suppress(OSError):  # the command writes too, so there may be less by now
                os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size + room)


def children_of(process: int) -> list[int]:
    """Processes that a process has started."""
    found = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for path in found if path.exists() for child in path.read_text().split()]
