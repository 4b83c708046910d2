"""Work that several commands share."""

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import pytest

from csml.distributed.world import ALONE
from csml.errors import CsmlError
from csml.runs import locks
from csml.runs.locks import Holder, in_use, lock_each, only_writer, require_unused

HOLDER = """
import sys, time
from pathlib import Path
from csml.runs.locks import lock_each
from csml.distributed.world import ALONE
for item in lock_each([Path(sys.argv[1])], lambda path: path, ALONE, lambda: 0):
    print("mine", flush=True)
    time.sleep(600)
"""


def itself(path: Path) -> Path:
    return path


def test_what_nobody_holds_comes_in_order(tmp_path: Path) -> None:
    work = [tmp_path / name for name in "cab"]
    assert list(lock_each(work, itself, ALONE, lambda: 0)) == work


def test_what_is_held_comes_when_it_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "_PATIENCE", 0.01)
    first, second = tmp_path / "first", tmp_path / "second"
    other = lock_each([first], itself, ALONE, lambda: 0)
    assert next(other) == first
    asked = []

    def let_go() -> int:
        asked.append(None)
        other.close()
        return 0

    assert list(lock_each([first, second], itself, ALONE, let_go)) == [second, first]
    assert len(asked) == 1


def test_waiting_can_be_broken_off(tmp_path: Path) -> None:
    other = lock_each([tmp_path / "a"], itself, ALONE, lambda: 0)
    next(other)
    assert list(lock_each([tmp_path / "a"], itself, ALONE, lambda: signal.SIGTERM)) == []


def test_a_killed_command_holds_nothing(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path / "a")], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "mine\n"

    def kill() -> int:
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        return 0

    assert list(lock_each([tmp_path / "a"], itself, ALONE, kill)) == [tmp_path / "a"]


WRITER = """
import sys, time
from pathlib import Path
from csml.runs.locks import only_writer
with only_writer(Path(sys.argv[1])):
    print("mine", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def writer(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """Another process that writes `tmp_path`."""
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "mine\n"
    yield process
    process.kill()
    process.wait()


def test_a_directory_has_one_writer_who_is_named(tmp_path: Path, writer: "subprocess.Popen[str]") -> None:
    with pytest.raises(CsmlError, match=rf"is being written by another csml \(.*process {writer.pid} on .*, since 20"):
        only_writer(tmp_path).__enter__()
    with pytest.raises(CsmlError, match="being written"):  # reading who holds it must not have released it
        only_writer(tmp_path).__enter__()


def test_a_killed_writer_holds_nothing_and_a_released_lock_leaves_no_file(
    tmp_path: Path, writer: "subprocess.Popen[str]"
) -> None:
    writer.kill()
    writer.wait()
    assert (tmp_path / ".lock").exists()
    with only_writer(tmp_path):
        assert json.loads((tmp_path / ".lock").read_text())["process"] == os.getpid()
    assert not (tmp_path / ".lock").exists()


def test_inner_directories_are_covered_but_not_for_other_threads(tmp_path: Path) -> None:
    (tmp_path / "round-1").mkdir()
    with only_writer(tmp_path), only_writer(tmp_path), only_writer(tmp_path / "round-1"):
        assert not (tmp_path / "round-1" / ".lock").exists()
        with ThreadPoolExecutor() as pool, pytest.raises(CsmlError, match="being written"):
            pool.submit(only_writer(tmp_path).__enter__).result()
    assert not (tmp_path / ".lock").exists()


def test_a_run_in_which_another_process_writes_is_not_deleted(tmp_path: Path, writer: "subprocess.Popen[str]") -> None:
    with pytest.raises(CsmlError, match="being written"):
        require_unused(tmp_path.parent)


USER = WRITER.replace("only_writer", "in_use")


def test_a_run_in_use_can_be_used_and_trained_but_not_overwritten(tmp_path: Path) -> None:
    user = subprocess.Popen([sys.executable, "-c", USER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert user.stdout is not None and user.stdout.readline() == "mine\n"
    try:
        with only_writer(tmp_path), in_use(tmp_path):
            pass
        with pytest.raises(CsmlError, match="is being used by another csml"):
            require_unused(tmp_path)
    finally:
        user.kill()
        user.wait()
    require_unused(tmp_path)  # a killed process uses nothing, and what it left is removed
    assert list(tmp_path.iterdir()) == []


def test_the_last_who_uses_a_run_leaves_no_file(tmp_path: Path) -> None:
    with in_use(tmp_path):
        with in_use(tmp_path):
            pass
        with pytest.raises(CsmlError, match="is being used"):  # the inner end must not have released it
            require_unused(tmp_path)
        other = subprocess.Popen([sys.executable, "-c", USER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert other.stdout is not None and other.stdout.readline() == "mine\n"
    assert (tmp_path / ".used").exists()  # the other's
    other.kill()
    other.wait()
    with in_use(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_cannot_be_written_can_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "open", refused)
    with in_use(tmp_path), in_use(tmp_path / "missing"):
        pass


@pytest.fixture
def without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that knows no locks, as some network disks."""

    def refused(file: object, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks.fcntl, "lockf", refused)


def held_by(folder: Path, **changed: object) -> None:
    (folder / ".lock").write_text(json.dumps({**asdict(Holder.this()), **changed}))


def test_without_locks_the_record_decides(
    tmp_path: Path, without_locks: None, caplog: pytest.LogCaptureFixture
) -> None:
    with only_writer(tmp_path):
        assert "has no locks (No locks available)" in caplog.text
    held_by(tmp_path, process=os.getppid(), started=locks._start_time(os.getppid()))
    with pytest.raises(CsmlError, match=f"process {os.getppid()} on"):
        only_writer(tmp_path).__enter__()
    held_by(tmp_path, machine="another")  # nobody can tell from here whether it lives
    with pytest.raises(CsmlError, match="on another, since"):
        only_writer(tmp_path).__enter__()


@pytest.mark.parametrize(
    "left",
    ['{"process": 4194303}', "", "[]", "[" * 100_000, '{"process": "x"}', "nonsense", "9" * 5000],
)
def test_a_stale_or_damaged_record_stops_nobody(tmp_path: Path, without_locks: None, left: str) -> None:
    (tmp_path / ".lock").write_text(left)
    with only_writer(tmp_path):
        pass
    held_by(tmp_path, process=4194303)  # no such process
    with only_writer(tmp_path):
        pass
    held_by(tmp_path, process=os.getppid(), started="1")  # its number belongs to another process now
    with only_writer(tmp_path):
        pass
