"""Threads beside other programs."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from csml.config import HardwareConfig
from csml.distributed.threads import Reading, Threads, better_threads, read_meters, threads_for


@given(st.integers(1, 64), st.integers(0, 64))
def test_as_many_threads_go_as_other_programs_came(cores: int, others: int) -> None:
    waited = cores * others / (cores + others)  # n threads and f others have n cores
    left = better_threads(cores, cores, waited, idle=0)
    if waited < 0.1 * cores:
        assert left == cores
    else:
        assert left == max(1, -(-cores // 4), cores - others)


@pytest.mark.parametrize(
    ("threads", "idle", "wanted"), [(1, 0.5, 1), (1, 0.9, 2), (1, 2.8, 4), (3, 5.0, 4), (4, 0.0, 4)]
)
def test_a_thread_comes_back_for_every_core_that_idles(threads: int, idle: float, wanted: int) -> None:
    assert better_threads(threads, 4, waited=0.0, idle=idle) == wanted


class Machine:
    """Two cores with a busy program beside us at some times, as the meters see it."""

    def __init__(self) -> None:
        torch.set_num_threads(2)
        self.threads = Threads()
        self.reading = Reading(0.0, 0.0, 0.0)
        self.used: list[int] = []

    def run(self, seconds: float, busy: bool, seen: bool = True) -> list[int]:
        """`seen`: whether an idle core shows that the other program is gone; else both cores always look idle."""
        used = []
        for _ in range(round(seconds / 0.5)):
            waited = 2 / 3 if busy and self.threads.now == 2 else 0.0
            idle = 0.0 if self.threads.now == 2 or (busy and seen) else 1.0
            before = self.reading
            self.reading = Reading(before.at + 0.5, before.waited + waited / 2, before.idle + idle / 2)
            self.threads.decide(before, self.reading)
            used.append(self.threads.now)
        return used


@pytest.fixture
def machine() -> Iterator[Machine]:
    before = torch.get_num_threads()
    yield Machine()
    torch.set_num_threads(before)


def test_threads_go_when_a_program_comes_and_come_back_when_it_goes(machine: Machine) -> None:
    assert machine.run(5, busy=False) == [2] * 10
    assert machine.run(5, busy=True) == [1] * 10
    assert torch.get_num_threads() == 1
    assert machine.run(5, busy=False)[1:] == [2] * 9
    assert torch.get_num_threads() == 2


def test_where_idle_cores_cannot_be_had_threads_are_tried_less_and_less_often(machine: Machine) -> None:
    used = machine.run(120, busy=True, seen=False)  # as in a container that may use two of many cores
    assert used.count(2) < 10
    assert machine.run(130, busy=False)[-1] == 2


def test_that_cores_are_busy_is_said_once(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="csml"):
        for _ in range(5):
            machine.run(60, busy=True)
            machine.run(60, busy=False)
    assert caplog.messages == ["other programs keep cores busy: 1 of 2 threads until they are free"]


def test_what_follows_has_all_threads_again(machine: Machine) -> None:
    with machine.threads:
        machine.run(1, busy=True)
    assert torch.get_num_threads() == machine.threads.now == 2


@pytest.mark.parametrize("fixed", [{"threads": 2}, {"compile": True}])
def test_a_number_that_was_given_stays(fixed: dict[str, Any]) -> None:
    assert threads_for(HardwareConfig(**fixed), torch.device("cpu"))._last is None
    assert threads_for(HardwareConfig(), torch.device("cpu"))._last is not None


def test_meters_are_none_where_there_are_none(tmp_path: Path) -> None:
    assert read_meters(tmp_path) is None


CROWD = """
import os, subprocess, sys, time
from csml.distributed.threads import read_meters
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
before, spent = read_meters(), time.process_time()
while time.process_time() - spent < 0.2:
    pass
now = read_meters()
for other in others:
    other.kill()
print(now.waited - before.waited)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="the system does not count")
def test_a_process_that_shares_its_core_with_two_others_waits() -> None:
    done = subprocess.run([sys.executable, "-c", CROWD], capture_output=True, text=True, check=True)
    assert float(done.stdout) > 0.1  # 0.4 s, if shares are fair
