"""Processes that start together: one that never comes, or dies before it joins, is named, and nobody waits long."""

import os
import signal
import socket
import time
from pathlib import Path

import pytest

from conftest import SMALL_RUN, wait_for
from csml.api.processes import in_processes
from csml.config import HardwareConfig
from csml.distributed.launch import join_world
from csml.errors import CsmlError
from processes import FORKED
from started import Started

_SOON = 120.0
"""Seconds; csml once waited for half an hour, and a start takes some on a busy machine."""


def free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def rank_of(rank: int, size: int, out: Path, port: str) -> Started:
    """A process that a launcher has started, which gives the others three seconds."""
    world = {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    world |= {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(size)}
    return Started("pretrain", *SMALL_RUN, "--out", str(out), "--hardware.join_minutes", "0.05", environment=world)


@pytest.mark.parametrize("missing", [0, 2])
def test_who_never_comes_is_named_by_all_others(tmp_path: Path, missing: int) -> None:
    port = free_port()
    there = [rank_of(rank, 3, tmp_path / "run", port) for rank in range(3) if rank != missing]
    for process in there:
        printed = process.wait(_SOON)
        assert process.returncode == 2, printed
        last = printed.strip().splitlines()[-1]
        assert last.startswith("csml: error: hardware.join_minutes: "), printed
        assert f"process {missing} of 3 did not join within 0.05 minutes" in last
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE: expected a number"),
        ({"WORLD_SIZE": "2"}, "RANK: expected a number"),
        ({"WORLD_SIZE": "2", "RANK": "2", "MASTER_PORT": "1"}, "RANK: 2 is not one of 0 to 1"),
        ({"WORLD_SIZE": "2", "RANK": "1", "MASTER_PORT": "99999"}, "MASTER_PORT: 99999"),
    ],
)
def test_an_environment_that_no_launcher_makes_is_told(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], said: str
) -> None:
    for name in ("RANK", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(CsmlError, match=said):
        join_world(HardwareConfig())


def join_unless_second(folder: str) -> int:
    """Work of a worker: rank 1 dies before it joins."""
    (Path(folder) / os.environ["RANK"]).write_text(str(os.getpid()))
    if os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    return join_world(HardwareConfig()).size


def join_and_wait(folder: str) -> None:
    """Work of a worker: it joins, says so, and goes on for long."""
    rank = join_world(HardwareConfig()).rank
    (Path(folder) / f"{rank}.part").write_text(str(os.getpid()))
    (Path(folder) / f"{rank}.part").rename(Path(folder) / str(rank))
    time.sleep(300)


def start_workers(paths: str, folder: str) -> None:
    os.environ["PYTHONPATH"] = paths
    in_processes(join_and_wait, HardwareConfig(devices=2), folder)


@pytest.fixture
def workers_find_this(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are fresh Pythons, which import what they call."""
    here = Path(__file__).parent
    paths = [str(here), str(here.parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if path))


@pytest.mark.usefixtures("workers_find_this")
def test_a_worker_that_dies_before_it_joins_ends_the_others(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(CsmlError, match=r"worker process 1 of 2 died \(killed by SIGKILL"):
        in_processes(join_unless_second, HardwareConfig(devices=2), str(tmp_path))
    assert time.monotonic() - began < _SOON
    assert not is_alive(tmp_path / "0")


@pytest.mark.usefixtures("workers_find_this")
def test_workers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    # The server that forks was started with the environment of another test.
    parent = FORKED.Process(target=start_workers, args=(os.environ["PYTHONPATH"], str(tmp_path)))
    parent.start()
    for rank in "01":
        wait_for(tmp_path / rank, lambda: None if parent.is_alive() else "the parent has ended")
    parent.kill()
    until = time.monotonic() + _SOON
    while any(is_alive(tmp_path / rank) for rank in "01"):
        assert time.monotonic() < until, "they go on, unseen"
        time.sleep(0.05)


def test_a_signal_before_all_have_joined_leaves_nobody_behind(tmp_path: Path) -> None:
    started = Started("pretrain", *SMALL_RUN, "--out", str(tmp_path / "run"), "--hardware.devices", "2")
    children: list[int] = []
    until = time.monotonic() + _SOON
    while len(children) < 2:  # they import for seconds now
        assert time.monotonic() < until, started.printed
        children = workers_of(started.pid or 0)
        time.sleep(0.01)
    started.send_signal(signal.SIGINT)
    printed = started.wait(_SOON)
    assert (started.returncode, printed.strip().splitlines()[-1]) == (130, "csml: stopped")
    assert "Traceback" not in printed
    assert not any(Path(f"/proc/{child}").exists() for child in children)


def workers_of(parent: int) -> list[int]:
    found = [
        int(child) for file in Path(f"/proc/{parent}/task").glob("*/children") for child in file.read_text().split()
    ]
    return [child for child in found if b"csml.api.worker" in Path(f"/proc/{child}/cmdline").read_bytes()]


def is_alive(file: Path) -> bool:
    """Whether the process whose number is in a file runs."""
    status = Path(f"/proc/{file.read_text()}/stat")
    try:
        return status.read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
