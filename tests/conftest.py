"""Settings of all tests, and the small data and runs several of them need."""

import fcntl
import io
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings
from PIL import Image
from xdist.scheduler import LoadFileScheduling

import unsynced  # noqa: F401
from csml.cli import COMMANDS, main
from csml.runs.metrics import read_metrics

settings.register_profile("csml", deadline=None, max_examples=40, derandomize=True)
settings.load_profile("csml")


LONGEST = (
    "test_documents.py", "test_many_processes.py", "test_combinations.py", "test_shared_work.py", "test_page.py",
    "test_python_page.py", "test_detect.py", "test_workbench_page.py", "test_ablate.py", "test_resume.py",
    "test_workbench_server.py", "test_scene.py", "test_export_formats.py", "test_workbench_loop.py", "test_pretrain.py",
    "test_detectors.py", "test_report_detectors.py", "test_weights.py", "test_site.py", "test_pretraining.py",
    "test_export.py", "test_examples.py", "test_supervised.py", "test_few_labels.py",
)  # fmt: skip
"""Files of a quarter of a minute to two minutes. They begin first: one that began last would keep a single worker busy.
Those that mostly wait, for a browser or for each other's processes, stand between those that mostly compute."""
TOGETHER = {
    "test_workbench_labels.py": "test_workbench_page.py",
    "test_workbench_access.py": "test_workbench_server.py",
}
"""File → the file whose worker it runs in, because both use a fixture that takes seconds."""


class ByFixture(LoadFileScheduling):
    """A file's tests run in one worker, and so do those of files that belong together."""

    def _split_scope(self, nodeid: str) -> str:
        file = Path(super()._split_scope(nodeid))
        return str(file.with_name(TOGETHER.get(file.name, file.name)))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return ByFixture(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


def pytest_xdist_auto_num_workers() -> int:
    """A worker more than cores: a third of the time tests wait, for processes that start or for each other's end."""
    return len(os.sched_getaffinity(0)) + 1


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nothing is read from or left in the user's cache."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["CSML_CACHE"] = str(folder)
    os.environ["CSML_MEASURE"] = "0"  # what a test computes does not depend on what was fast just now
    return folder


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


SMALL_RUN = [
    "--preset", "demo", "--images.synthetic_train", "150", "--images.synthetic_val", "50", "--epochs", "3",
    "--batch_size", "32", "--contrast.queue_length", "64", "--neighbors.warmup_epochs", "1",
    "--neighbors.refresh_every", "1", "--neighbors.keep", "1", "--monitor.knn_every", "1",
    "--monitor.tensorboard", "false", "--model.backbone", "nano", "--monitor.baselines", "false",
    "--hardware.threads", "1",
]  # fmt: skip
"""A CsMl run of a few seconds in which neighbours are searched twice."""


def csml(*words: str, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """Run the command as the console script does, but in this process: starting one takes five seconds."""
    log, out, err = logging.getLogger("csml"), io.StringIO(), io.StringIO()
    before = log.level, log.handlers, log.propagate
    try:
        with redirect_stdout(out), redirect_stderr(err), chdir(cwd or Path.cwd()):
            main(list(words))
    except SystemExit as end:
        return subprocess.CompletedProcess(words, int(end.code or 0), out.getvalue(), err.getvalue())
    finally:
        log.level, log.handlers, log.propagate = before
    raise AssertionError("the command did not end")


def configured(command: str, *words: str) -> Any:
    """The settings that a command line stands for."""
    return COMMANDS[command].config(COMMANDS[command].options().parse(list(words)))


def csml_process(*words: str) -> "subprocess.CompletedProcess[str]":
    """Run the command as a user does, in a process of its own."""
    return subprocess.run([sys.executable, "-m", "csml", *words], capture_output=True, text=True, timeout=600)


def wait_for(path: Path, ended: Callable[[], str | None]) -> None:
    """Until a process has written the file; `ended` returns what it printed if it has ended, else None."""
    for _ in range(18_000):
        if path.exists():
            return
        assert (printed := ended()) is None, printed
        time.sleep(0.01)
    pytest.fail(f"{path} was never written")


TIMES = {"seconds", "search_seconds", "images_per_second", "data_wait"}
"""What two runs that are otherwise the same may differ in."""


def untimed(metrics: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl without what two runs that are otherwise the same may differ in."""
    return [{key: value for key, value in line.items() if key not in TIMES} for line in read_metrics(metrics)]


def assert_same(one: Any, two: Any, where: str = "") -> None:
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, two), where
    elif isinstance(one, dict):
        assert one.keys() == two.keys(), where
        for key in one:
            assert_same(one[key], two[key], f"{where}/{key}")
    elif isinstance(one, list):
        assert len(one) == len(two), where
        for number, (a, b) in enumerate(zip(one, two, strict=True)):
            assert_same(a, b, f"{where}/{number}")
    else:
        assert one == two, where


def noise_photos(folder: Path, count: int, suffix: str = ".png") -> None:
    """Readable pictures with nothing on them, 00.png, 01.png, …"""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for i in range(count):
        picture = Image.fromarray(rng.integers(0, 256, (40, 50, 3), dtype=np.uint8))
        picture.save(folder / f"{i:02d}{suffix}")


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Any]) -> Path:
    """A folder that the first worker who needs it fills; the others wait for it. Nobody writes in it afterwards."""
    base = factory.getbasetemp().parent if "PYTEST_XDIST_WORKER" in os.environ else factory.getbasetemp()
    folder, made = base / name, base / f"{name}.made"
    with open(base / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a worker that failed
            make(folder)
            made.touch()
    return folder


def _small_run(out: Path) -> None:
    done = csml("pretrain", *SMALL_RUN, "--out", str(out))
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    """A finished small CsMl run."""
    out = tmp_path_factory.mktemp("runs") / "small"
    return Path(shutil.copytree(made_once(tmp_path_factory, "small", _small_run), out))


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    """The runs that reports show, to be read only."""
    from runs_to_show import make_runs

    return made_once(tmp_path_factory, "shown", make_runs)
