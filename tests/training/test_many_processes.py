"""Several processes: the same batch, the same learning rate, the same result; and what happens when one dies."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch

from conftest import SMALL_RUN, assert_same, csml, wait_for
from csml.runs.checkpoint import load_checkpoint, load_newest
from csml.runs.metrics import read_metrics
from started import Started


def what_it_left(process: "subprocess.Popen[str]") -> str | None:
    """What a process printed, if it has ended."""
    return None if process.poll() is None or process.stderr is None else process.stderr.read()


def torchrun(*words: str, options: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", *options, "-m", "csml", *words]


FRESH_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
"""With 1, torchrun gives restarted processes a new rendezvous store; the old one may hold keys of dead processes."""
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", FRESH_STORE: "1"}
SAME = [*SMALL_RUN, "--images.synthetic_train", "160", "--monitor.knn_every", "0"]  # batches that divide evenly
SAME += ["--hardware.precision", "32-true"]  # where bf16 is native, its rounding would be all the difference there is


OFTEN = ["--checkpoint.every_steps", "1", "--checkpoint.keep", "50"]
AFTER_ONE_EPOCH = "epoch-0001-step-000000.pt"


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in one process."""
    out = tmp_path_factory.mktemp("one") / "run"
    done = csml("pretrain", *SAME, *OFTEN, "--out", str(out))
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in two."""
    out = tmp_path_factory.mktemp("two") / "run"
    done = csml("pretrain", *SAME, *OFTEN, "--hardware.devices", "2", "--out", str(out))
    assert done.returncode == 0, done.stderr[-3000:]
    return out


def test_two_processes_killed_before_their_first_checkpoint_start_from_their_beginning(
    tmp_path: Path, two: Path
) -> None:
    out = tmp_path / "run"
    process = Started("pretrain", *SAME, *OFTEN, "--hardware.devices", "2", "--out", str(out))
    process.wait_for(out / "config.yaml")
    process.kill()
    shutil.rmtree(out / "checkpoints", ignore_errors=True)
    (out / "metrics.jsonl").unlink(missing_ok=True)
    resumed = csml("pretrain", "--resume", str(out))
    assert resumed.returncode == 0, resumed.stderr[-3000:]
    assert "no checkpoint yet: the run starts from its beginning" in (out / "log.txt").read_text()
    assert (out / "backbone.safetensors").read_bytes() == (two / "backbone.safetensors").read_bytes()


def assert_close(run: Path, other: Path) -> None:
    """As close as float32 allows after an epoch of five steps."""
    ours, theirs = (load_checkpoint(root / "checkpoints" / AFTER_ONE_EPOCH)["method"] for root in (run, other))
    assert ours.keys() == theirs.keys()
    assert torch.equal(ours["queue.ids"], theirs["queue.ids"])
    for name, value in ours.items():
        torch.testing.assert_close(value, theirs[name], rtol=1e-3, atol=1e-3, msg=lambda m, name=name: f"{name}: {m}")
    first, second = (read_metrics(root / "metrics.jsonl")[0] for root in (run, other))
    assert second["loss"] == pytest.approx(first["loss"], rel=1e-4)
    assert first["lr"] == second["lr"]


def test_two_processes_do_what_one_does(one: Path, two: Path) -> None:
    """Sub-batches of BatchNorm, shuffled keys, queue, augmentation, CutMix: all as if it were one process."""
    assert_close(two, one)


def test_a_run_goes_on_with_another_number_of_processes(one: Path, two: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(two, out)
    (out / "metrics.jsonl").unlink()
    for late in ("epoch-0000-step-00000[345]", "epoch-000[123]"):
        for path in out.glob(f"checkpoints/{late}*"):
            path.unlink()
    done = csml("pretrain", "--resume", str(out), "--hardware.devices", "1")
    assert done.returncode == 0, done.stderr
    assert "step-000002" in (out / "log.txt").read_text().split("resumed from")[1]
    assert_close(out, one)


def children_of(parent: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(status.read_text().rsplit(")", 1)[1].split()[1]) == parent:
                found.append(int(status.parent.name))
        except OSError:  # it has just ended
            continue
    return found


def scheduled(out: Path, *more: str) -> list[Started]:
    """Two processes that a scheduler has started, as their environment tells."""
    words = ["pretrain", *SAME, "--out", str(out), *more]
    job = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NODELIST": "127.0.0.1"}
    job |= {"SLURM_JOB_ID": str(10_000 + os.getpid() % 10_000), "OMP_NUM_THREADS": "1"}
    ranks = [{"SLURM_PROCID": rank, "SLURM_LOCALID": rank} for rank in "01"]
    return [Started(*words, environment=job | rank) for rank in ranks]


def test_srun_s_names_are_understood(tmp_path: Path) -> None:
    for process in scheduled(tmp_path / "run", "--epochs", "1", "--neighbors.warmup_epochs", "0"):
        error = process.wait()
        assert process.returncode == 0, error[-3000:]
    assert len(read_metrics(tmp_path / "run" / "metrics.jsonl")) == 1


def test_who_is_left_alone_stops_within_a_minute_and_says_so(tmp_path: Path) -> None:
    out = tmp_path / "run"
    left, dead = scheduled(out, "--epochs", "50", "--checkpoint.every_steps", "1")
    left.wait_for(out / "checkpoints" / "epoch-0000-step-000002.pt")
    dead.kill()
    began = time.monotonic()
    error = left.wait()
    assert time.monotonic() - began < 60
    assert left.returncode == 2, error[-3000:]
    assert "process 1 of 2 no longer answers" in error and f"resume {out} to continue" in error
    assert "Traceback" not in error
    assert load_newest(out / "checkpoints") is not None


def test_a_killed_process_is_noticed_and_torchrun_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = [*SAME, "--epochs", "4", "--checkpoint.every_steps", "1", "--out", str(out)]
    command = torchrun("pretrain", *words, options=("--standalone", "--nproc-per-node=2", "--max-restarts=1"))
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    wait_for(out / "checkpoints" / "epoch-0001-step-000001.pt", partial(what_it_left, process))
    os.kill(max(children_of(process.pid)), signal.SIGKILL)
    began = time.monotonic()
    _, error = process.communicate(timeout=300)
    assert process.returncode == 0, error[-3000:]
    assert time.monotonic() - began < 120
    assert "resumed from" in (out / "log.txt").read_text()
    assert [record["epoch"] for record in read_metrics(out / "metrics.jsonl")] == [1, 2, 3, 4]


class Hosts:
    """Two machines: network namespaces joined by a bridge, or, where those are not allowed, ports of one machine."""

    def __init__(self) -> None:
        self.bridge = f"csml{os.getpid()}"
        namespaces = _ip("link", "add", self.bridge, "type", "bridge")
        self.names = [f"csml{os.getpid()}{host}" for host in "ab"] if namespaces else []
        self.master = "10.213.7.1" if namespaces else "127.0.0.1"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    def __enter__(self) -> "Hosts":
        for number, name in enumerate(self.names, 1):
            inner, outer = f"i{number}", f"{self.bridge}{number}"
            _ip("netns", "add", name)
            _ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", name)
            _ip("link", "set", outer, "master", self.bridge, "up")
            _ip("-n", name, "address", "add", f"10.213.7.{number}/24", "dev", inner)
            _ip("-n", name, "link", "set", inner, "up")
            _ip("-n", name, "link", "set", "lo", "up")
        if self.names:
            _ip("link", "set", self.bridge, "up")
        return self

    def __exit__(self, *error: object) -> None:
        for name in self.names:
            _ip("netns", "delete", name)
        if self.names:
            _ip("link", "delete", self.bridge)

    def start(self, host: int, *words: str) -> "subprocess.Popen[str]":
        """torchrun on a host, with one process of the two."""
        address = f"10.213.7.{host + 1}" if self.names else "127.0.0.1"
        command = torchrun(
            *words,
            options=(
                "--nnodes=2", "--nproc-per-node=1", "--max-restarts=3", f"--local-addr={address}",
                "--rdzv-id=test", "--rdzv-backend=c10d", f"--rdzv-endpoint={self.master}:{self.port}",
                f"--rdzv-conf=is_host={int(host == 0)}",
            ),
        )  # fmt: skip
        inside = ["ip", "netns", "exec", self.names[host]] if self.names else []
        environment = {**ENVIRONMENT, "GLOO_SOCKET_IFNAME": f"i{host + 1}" if self.names else "lo"}
        return subprocess.Popen([*inside, *command], stderr=subprocess.PIPE, text=True, env=environment)


def _ip(*words: str) -> bool:
    try:
        return subprocess.run(["ip", *words], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def test_a_host_that_dies_and_comes_back_changes_nothing(two: Path, tmp_path: Path) -> None:
    words = ["pretrain", *SAME, "--checkpoint.every_steps", "2", "--out"]
    with Hosts() as hosts:
        out = tmp_path / "run"
        first, second = hosts.start(0, *words, str(out)), hosts.start(1, *words, str(out))
        wait_for(out / "checkpoints" / "epoch-0001-step-000002.pt", partial(what_it_left, first))
        for process in [*children_of(second.pid), second.pid]:  # the power fails
            os.kill(process, signal.SIGKILL)
        second.communicate()
        back = hosts.start(1, *words, str(out))
        for process in (first, back):
            _, error = process.communicate(timeout=300)
            assert process.returncode == 0, error[-3000:]
    assert (out / "log.txt").read_text().count("resumed from") >= 1
    ours, theirs = (load_newest(root / "checkpoints") for root in (out, two))
    assert ours is not None and theirs is not None
    assert ours[1]["epoch"] == theirs[1]["epoch"] == 3
    assert_same(ours[1]["method"], theirs[1]["method"])
    assert_same(ours[1]["omega"], theirs[1]["omega"])
