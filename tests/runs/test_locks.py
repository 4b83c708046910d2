"""Work that several commands share."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from csml.distributed.world import ALONE
from csml.runs import locks
from csml.runs.locks import unclaimed

HOLDER = """
import sys, time
from pathlib import Path
from csml.runs.locks import unclaimed
from csml.distributed.world import ALONE
for item in unclaimed([Path(sys.argv[1])], lambda path: path, ALONE, lambda: 0):
    print("mine", flush=True)
    time.sleep(600)
"""


def itself(path: Path) -> Path:
    return path


def test_what_nobody_holds_comes_in_order(tmp_path: Path) -> None:
    work = [tmp_path / name for name in "cab"]
    assert list(unclaimed(work, itself, ALONE, lambda: 0)) == work


def test_what_is_held_comes_when_it_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "_PATIENCE", 0.01)
    first, second = tmp_path / "first", tmp_path / "second"
    other = unclaimed([first], itself, ALONE, lambda: 0)
    assert next(other) == first
    asked = []

    def let_go() -> int:
        asked.append(None)
        other.close()
        return 0

    assert list(unclaimed([first, second], itself, ALONE, let_go)) == [second, first]
    assert len(asked) == 1


def test_waiting_can_be_broken_off(tmp_path: Path) -> None:
    other = unclaimed([tmp_path / "a"], itself, ALONE, lambda: 0)
    next(other)
    assert list(unclaimed([tmp_path / "a"], itself, ALONE, lambda: signal.SIGTERM)) == []


def test_a_killed_command_holds_nothing(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path / "a")], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "mine\n"

    def kill() -> int:
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        return 0

    assert list(unclaimed([tmp_path / "a"], itself, ALONE, kill)) == [tmp_path / "a"]
