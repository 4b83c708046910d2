"""Locks on directories: a verb that writes into a directory holds its lock until it ends.

The lock is a POSIX record lock on DIRECTORY/.lock. The system releases it when the process dies, on network disks too,
and forked data workers do not inherit it. The file names the holder: command, process, machine. On a disk without locks
this record decides: its holder is dead if no process with that number and start time runs on this machine.

Verbs that use a run and write into it (knn, report, explore, …) may run concurrently, also during training; each holds
a shared lock on DIRECTORY/.used, and a run in use is not overwritten.
"""

import contextlib
import errno
import fcntl
import json
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TypeVar

from csml.distributed.world import World
from csml.errors import CsmlError, reason

T = TypeVar("T")

log = logging.getLogger("csml")

LOCK = ".lock"
USED = ".used"
_LONGEST = 10_000
"""Largest number of characters read from a lock file."""
_PATIENCE = 2.0
"""Seconds between two attempts to lock an item that another command holds."""
_held: dict[Path, int] = {}
"""Directories that this process holds, and the thread that holds each: the system does not distinguish threads."""
_used: dict[Path, tuple[int, IO[str] | None]] = {}
"""Directories that this process uses, with a use count, because the system would release the lock at the first
close."""


@dataclass(frozen=True)
class Holder:
    """The process that writes a directory."""

    command: str
    process: int
    machine: str
    started: str | None
    """when the process was started, in ticks of the system's clock; None: unknown"""
    since: str
    """when it acquired the lock, for messages"""

    @staticmethod
    def this() -> "Holder":
        words = [Path(sys.argv[0]).name, *sys.argv[1:2]]
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        return Holder(" ".join(words), os.getpid(), socket.gethostname(), _start_time(os.getpid()), since)

    def may_be_alive(self) -> bool:
        """False if it is known to be dead: this machine has no such process, or its number was reused."""
        if self.machine != socket.gethostname():
            return True
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return False
        except (OSError, OverflowError):
            pass
        now = _start_time(self.process)
        return self.started is None or now is None or now == self.started

    def __str__(self) -> str:
        return f"{self.command}, process {self.process} on {self.machine}, since {self.since}"


@contextlib.contextmanager
def only_writer(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory, which must exist. Raises a CsmlError that names another holder.

    If this thread already holds the directory or a parent of it, that suffices: a round of mining, a run of an
    ablation.
    """
    directory = directory.resolve()
    covered = any(_held.get(place) == threading.get_ident() for place in (directory, *directory.parents))
    with contextlib.nullcontext(True) if covered else _lock(directory) as mine:
        if mine is not True:
            raise CsmlError(
                f"{directory} is being written by another csml{f' ({mine})' if mine else ''}; wait until it has ended, "
                "stop it, or choose another directory"
            )
        yield


@contextlib.contextmanager
def only_writers(world: World, directory: Path) -> Iterator[None]:
    """Create a directory and hold its lock in the first of several processes; its errors are raised in all."""

    def taken() -> None:
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CsmlError(f"{directory} cannot be made ({error.strerror})") from error
        held.enter_context(only_writer(directory))

    with contextlib.ExitStack() as held:
        world.broadcast(taken)
        yield


@contextlib.contextmanager
def in_use(directory: Path) -> Iterator[None]:
    """Prevent a run from being overwritten while it is used. Has no effect without locks or write permission."""
    directory = directory.resolve()
    if not directory.is_dir():
        yield
        return
    count, file = _used.get(directory, (0, None))
    if not count:
        with contextlib.suppress(OSError):
            file, _ = _opened(directory / USED, fcntl.LOCK_SH)
    _used[directory] = (count + 1, file)
    try:
        yield
    finally:
        count, file = _used.pop(directory)
        if count > 1:
            _used[directory] = (count - 1, file)
        elif file is not None:
            _release(file, directory / USED)


def require_unused(directory: Path) -> None:
    """Raise a CsmlError if another process uses a directory or writes into a subdirectory, such as a linear probe's."""
    for file in directory.rglob(LOCK):
        if file.parent != directory:
            with only_writer(file.parent):
                pass
    for file in directory.rglob(USED):
        if not _is_released(file):
            raise CsmlError(
                f"{file.parent} is being used by another csml, such as explore, knn or report; wait until it has "
                "ended, stop it, or choose another directory"
            )


def lock_each(work: Sequence[T], place: Callable[[T], Path], world: World, stopped: Callable[[], int]) -> Iterator[T]:
    """Yield each item while this command holds its lock. An item that another command holds is yielded after that
    command has finished it or died.

    Args:
        work: the items in the preferred order.
        place: the directory of an item; it is created.
        world: the processes of this command; all get the same items.
        stopped: called while waiting, with the same result in all processes; a value other than 0 ends the iteration.
    """
    left, announced = list(work), False
    while left:
        held = []
        for item in left:
            with _made_and_locked(place(item)) if world.is_rank_zero else contextlib.nullcontext(None) as mine:
                if world.all_reduce_max(int(mine is True)):
                    yield item
                else:
                    held.append(item)
        if len(held) == len(left):
            if not announced:
                log.info("another csml works on the remaining %d; waiting", len(left))
                announced = True
            if stopped():
                return
            time.sleep(_PATIENCE)
        left = held


@contextlib.contextmanager
def _made_and_locked(directory: Path) -> "Iterator[bool | Holder | None]":
    directory.mkdir(parents=True, exist_ok=True)
    with _lock(directory.resolve()) as mine:
        yield mine


@contextlib.contextmanager
def _lock(directory: Path) -> "Iterator[bool | Holder | None]":
    """True if this process got the lock, which it holds until the block ends; else its holder, None if unknown."""
    if directory in _held:  # the system would grant it again, and closing the file would release both
        yield Holder.this()
        return
    path = directory / LOCK
    try:
        file, granted = _opened(path)
    except OSError as error:
        raise CsmlError(f"{directory} cannot be written ({error.strerror or reason(error)})") from error
    # Read through `file`, because closing another descriptor of the file would release the lock.
    with file:
        before = _holder(file)
        if not granted:
            yield before
            return
        if before is not None and before.machine != socket.gethostname():
            log.warning("%s: %s has died, or its disk does not share locks with this machine", directory, before)
        _held[directory] = threading.get_ident()
        try:
            file.truncate(0)
            json.dump(asdict(Holder.this()), file)
            file.flush()
            yield True
        finally:
            del _held[directory]
            with contextlib.suppress(OSError):  # the directory may be gone or read-only now
                path.unlink()


def _opened(path: Path, how: int = fcntl.LOCK_EX) -> tuple[IO[str], bool]:
    """The lock file, and whether it is locked; False: another process holds it, or the disk has no locks."""
    while True:
        file = path.open("a+", encoding="utf-8")
        try:
            fcntl.lockf(file, how | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return file, False
            text = "%s has no locks (%s): csml notices other writers of this machine only; never write from two"
            log.warning(text, path.parent, error.strerror)
            return file, _is_free(file)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                return file, True
        file.close()  # the previous holder removed the file after we opened it and before we locked it


def _release(file: IO[str], path: Path) -> None:
    """Release a shared lock; the last process removes the file."""
    with file, contextlib.suppress(OSError):
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()


def _is_released(path: Path) -> bool:
    """Whether no process shares the lock of a file any more; the file is then removed."""
    if path.parent.resolve() in _used:
        return False
    try:
        file, granted = _opened(path)
    except OSError:
        return True
    with file:
        if granted:
            path.unlink(missing_ok=True)
        return granted


def _is_free(file: IO[str]) -> bool:
    before = _holder(file)
    return before is None or not before.may_be_alive()


def _holder(file: IO[str]) -> Holder | None:
    """The holder named in a lock file; None if there is none."""
    try:
        file.seek(0)
        found = Holder(**json.loads(file.read(_LONGEST)))
        right = isinstance(found.process, int) and isinstance(found.machine, str)
        return found if right else None
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def _start_time(process: int) -> str | None:
    """Start time of a process of this machine; None if the system does not report it."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text("utf-8", errors="replace")
    except OSError:
        return None
    return stat.rpartition(")")[2].split()[19]
