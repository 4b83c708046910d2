"""What may happen to a run and its files: it ends in one line or carries on, and the last good checkpoint loads."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

from conftest import SMALL_RUN, assert_same, csml, noise_photos
from csml.api import processes
from csml.errors import CsmlError
from csml.runs.checkpoint import load_checkpoint, load_newest, save_checkpoint
from csml.runs.metrics import read_metrics
from soak.moments import children_of
from started import Started

OFTEN = ["--checkpoint.every_steps", "2", "--checkpoint.keep", "3"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three checkpoints."""
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, {"step": step, "weights": torch.full((1000,), float(step))}, 0, step, keep=3)
    return tmp_path


def newest(folder: Path) -> Path:
    return sorted(folder.glob("*.pt"))[-1]


@pytest.mark.parametrize("place", [0.01, 0.3, 0.5, 0.9, 0.999])
def test_a_flipped_bit_is_noticed_and_the_checkpoint_before_is_taken(folder: Path, place: float) -> None:
    content = bytearray(newest(folder).read_bytes())
    content[int(place * len(content))] ^= 0x10
    newest(folder).write_bytes(content)
    with pytest.raises(CsmlError, match="is damaged: its checksum is wrong"):
        load_checkpoint(newest(folder))
    found = load_newest(folder)
    assert found is not None and found[1]["step"] == 2


@pytest.mark.parametrize("left", [0, 1, 100, 3000])
def test_a_file_cut_short_is_noticed(folder: Path, left: int) -> None:
    newest(folder).write_bytes(newest(folder).read_bytes()[:left])
    for sum_of in folder.glob("*.sum"):  # even without checksums
        sum_of.unlink()
    found = load_newest(folder)
    assert found is not None and found[1]["step"] == 2


def test_if_all_are_damaged_the_oldest_is_named(folder: Path) -> None:
    for path in folder.glob("*.pt"):
        path.write_bytes(b"nothing")
    with pytest.raises(CsmlError, match=r"step-000001\.pt"):
        load_newest(folder)


def test_a_failed_save_keeps_what_is_there(folder: Path) -> None:
    """A file system that takes no more: a limit on the size of files stands in for it."""
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    code = (
        "import resource, sys, torch; from pathlib import Path; from csml.runs.checkpoint import save_checkpoint;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096));"
        "save_checkpoint(Path(sys.argv[1]), {'weights': torch.zeros(10000)}, 0, 4, keep=3)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, timeout=120)
    assert "cannot be written" in done.stderr and "the ones before it are kept" in done.stderr
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_full_disk_is_named_and_only_checkpoints_that_exist_are_promised(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:  # as torch says it
        raise RuntimeError("[enforce fail at inline_container.cc:815] . PytorchStreamWriter failed writing file data/0")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(CsmlError, match=r"cannot be written \(the disk is full\); the ones before it are kept"):
        save_checkpoint(folder, {}, 0, 4, keep=3)
    with pytest.raises(CsmlError, match=r"cannot be written \(the disk is full\); there is none before it"):
        save_checkpoint(tmp_path / "new", {}, 0, 1, keep=3)


def test_a_data_worker_that_dies_while_a_checkpoint_is_written_is_not_blamed_on_the_checkpoint(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:  # torch raises it wherever the main thread is
        raise RuntimeError("DataLoader worker (pid 3) is killed by signal: Killed.")

    monkeypatch.setattr(torch, "save", killed)
    with pytest.raises(RuntimeError, match="DataLoader worker"):
        save_checkpoint(folder, {}, 0, 4, keep=3)


@pytest.mark.parametrize(
    ("number", "said"),
    [(signal.SIGTERM, "killed by SIGTERM)"), (signal.SIGKILL, "SIGKILL, perhaps for want of memory")],
)
def test_only_a_sigkill_is_taken_for_want_of_memory(number: signal.Signals, said: str) -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    process.send_signal(number)
    process.wait()
    assert said in processes._died(0, [process.returncode])


def test_a_killed_data_worker_is_told_and_the_run_goes_on_when_resumed(tmp_path: Path) -> None:
    photos, out = tmp_path / "photos", tmp_path / "run"
    noise_photos(photos, 300)
    words = ["--data", str(photos), "--images.workers", "1", "--checkpoint.every_steps", "1", "--epochs", "30"]
    process = Started("pretrain", *SMALL_RUN, *words, "--out", str(out))
    process.wait_for(out / "checkpoints" / "epoch-0000-step-000002.pt")
    while not (workers := children_of(int(process.pid or 0))):  # between two epochs there is none
        assert process.returncode is None, process.printed
    os.kill(workers[0], signal.SIGKILL)
    error = process.wait()
    assert process.returncode == 2 and "Traceback" not in error, error
    assert "a process that decodes images was killed" in error.strip().splitlines()[-1]
    assert load_newest(out / "checkpoints") is not None


def test_a_run_on_a_disk_that_is_read_only_is_one_line(small_run: Path) -> None:
    code = (
        "import contextlib, sys; from csml.cli import main\n"
        "for words in (['knn', sys.argv[1]], ['pretrain', '--resume', sys.argv[1]]):\n"
        "    with contextlib.suppress(SystemExit): main(words)"
    )
    mount = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && exec "$2" -c "$3" "$1"'
    inside = ["unshare", "--map-root-user", "--mount"]
    if shutil.which("unshare") is None or subprocess.run([*inside, "true"], capture_output=True).returncode:
        pytest.skip("this machine lets nobody mount")
    command = [*inside, "sh", "-c", mount, "sh", str(small_run), sys.executable, code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    errors = [line for line in done.stderr.splitlines() if line.startswith("csml: error: ")]
    assert len(errors) == 2 and "Traceback" not in done.stderr, done.stderr
    assert all("read-only" in line.lower() for line in errors), errors


def test_a_run_on_a_full_disk_ends_in_one_line_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    whole, full = tmp_path / "whole", tmp_path / "full"
    assert csml("pretrain", *SMALL_RUN, *OFTEN, "--out", str(whole)).returncode == 0
    size = max(path.stat().st_size for path in (whole / "checkpoints").glob("*.pt"))
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (size - 1000, size - 1000))
    process = Started("pretrain", *SMALL_RUN, *OFTEN, "--out", str(full), first=limit)
    error = process.wait()
    assert process.returncode == 2
    assert "cannot be written" in error.strip().splitlines()[-1]
    assert "Traceback" not in error
    last = sorted((full / "checkpoints").glob("*.pt"))
    if last:  # those of the first epoch, before there was an Ω to save, were smaller
        assert load_checkpoint(last[-1])["epoch"] <= 3
        assert csml("pretrain", "--resume", str(full)).returncode == 0
    else:
        assert csml("pretrain", *SMALL_RUN, *OFTEN, "--out", str(full), "--overwrite").returncode == 0
    states = [load_newest(run / "checkpoints") for run in (whole, full)]
    assert states[0] is not None and states[1] is not None
    assert_same(states[0][1]["method"], states[1][1]["method"])


def test_a_damaged_checkpoint_costs_steps_but_not_the_run(tmp_path: Path) -> None:
    whole, damaged = tmp_path / "whole", tmp_path / "damaged"
    assert csml("pretrain", *SMALL_RUN, *OFTEN, "--out", str(whole)).returncode == 0
    shutil.copytree(whole, damaged)
    last = newest(damaged / "checkpoints")
    last.write_bytes(last.read_bytes()[:-500])
    done = csml("pretrain", "--resume", str(damaged))
    assert done.returncode == 0, done.stderr
    assert "is damaged" in done.stderr and "the one before it is taken" in done.stderr
    states = [load_newest(run / "checkpoints") for run in (whole, damaged)]
    assert states[0] is not None and states[1] is not None
    assert_same(states[0][1]["method"], states[1][1]["method"])


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = csml("pretrain", *SMALL_RUN, "--out", str(tmp_path / "file" / "run"))
    assert done.returncode == 2
    assert "out: cannot make" in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_files_that_vanish_during_a_run_are_named_and_passed_over(tmp_path: Path) -> None:
    photos, out = tmp_path / "photos", tmp_path / "run"
    noise_photos(photos, 200)
    words = [
        "--data",
        str(photos),
        "--images.workers",
        "0",
        "--images.max_failed",
        "0.1",
        "--checkpoint.every_steps",
        "1",
    ]
    process = Started("pretrain", *SMALL_RUN, *words, "--out", str(out))
    process.wait_for(out / "checkpoints" / "epoch-0000-step-000001.pt")
    (photos / "07.png").unlink()
    (photos / "123.png").unlink()
    error = process.wait()
    assert process.returncode == 0, error
    assert "skipped, cannot be read: 07.png" in error and "123.png" in error
    assert read_metrics(out / "metrics.jsonl")[-1]["failed"] == 2
    assert json.loads((out / "run.json").read_text())["images"] == 200
