"""A run that was killed continues as if nothing had happened."""

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from conftest import SMALL_RUN, assert_same, csml, noise_photos, untimed
from csml.data.synthetic import synthetic
from csml.runs.checkpoint import load_checkpoint, newest_checkpoint
from csml.runs.directory import RunDirectory
from csml.runs.metadata import read_metadata
from csml.runs.metrics import read_metrics
from csml.search.omega import purity
from started import Started

OFTEN = ["--checkpoint.every_steps", "2"]


def start(out: Path, *more: str) -> Started:
    return Started("pretrain", *SMALL_RUN, *OFTEN, *more, "--out", str(out))


def final_state(out: Path) -> dict[str, Any]:
    path = newest_checkpoint(out / "checkpoints")
    assert path is not None
    return load_checkpoint(path)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    done = csml("pretrain", *SMALL_RUN, *OFTEN, "--out", str(out))
    assert done.returncode == 0, done.stderr
    return out


def assert_runs_equal(one: Path, two: Path) -> None:
    assert_same(final_state(one), final_state(two))
    assert untimed(one / "metrics.jsonl") == untimed(two / "metrics.jsonl")
    assert (one / "backbone.safetensors").read_bytes() == (two / "backbone.safetensors").read_bytes()


def test_sigkill_in_the_middle_of_an_epoch_changes_nothing(tmp_path: Path, undisturbed: Path) -> None:
    out = tmp_path / "run"
    process = start(out)
    process.wait_for(out / "checkpoints" / "epoch-0001-step-000002.pt")  # in the second epoch, with neighbours
    process.kill()
    assert process.returncode == -signal.SIGKILL
    resumed = csml("pretrain", "--resume", str(out))
    assert resumed.returncode == 0, resumed.stderr
    assert_runs_equal(out, undisturbed)


@pytest.mark.parametrize("file", ["config.yaml", "run.json"])
def test_a_run_killed_before_its_first_checkpoint_starts_from_its_beginning(
    tmp_path: Path, undisturbed: Path, file: str
) -> None:
    out = tmp_path / "run"
    process = start(out)
    process.wait_for(out / file)
    process.kill()
    shutil.rmtree(out / "checkpoints", ignore_errors=True)  # on a fast machine there may be one
    (out / "metrics.jsonl").unlink(missing_ok=True)
    resumed = csml("pretrain", "--resume", str(out))
    assert resumed.returncode == 0, resumed.stderr
    assert "no checkpoint yet: the run starts from its beginning" in resumed.stderr
    assert_runs_equal(out, undisturbed)
    assert read_metadata(out)["images"] == read_metadata(undisturbed)["images"]


ONLINE = ["--neighbors.features", "online"]
MEMORY = [
    "--contrast.memory", "true", "--views.neighbor_views", "false", "--views.mix", "none", "--model.stages", "[4]",
    "--neighbors.warmup_epochs", "0", "--neighbors.size", "40", "--neighbors.whiten", "0.5",
]  # fmt: skip


@pytest.mark.parametrize("more", [ONLINE, MEMORY], ids=["keys to search", "keys to learn with"])
def test_keys_of_all_images_survive_a_kill(tmp_path: Path, more: list[str]) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert csml("pretrain", *SMALL_RUN, *OFTEN, *more, "--out", str(whole)).returncode == 0
    process = start(killed, *more)
    process.wait_for(killed / "checkpoints" / "epoch-0000-step-000002.pt")  # half of the images have a key
    process.kill()
    resumed = csml("pretrain", "--resume", str(killed))
    assert resumed.returncode == 0, resumed.stderr
    assert_runs_equal(killed, whole)
    with np.load(RunDirectory(whole).neighbor_files()[-1]) as saved:
        found = purity(saved["indices"], synthetic(32, 150, 50)[0].labels)
    assert read_metrics(whole / "metrics.jsonl")[-1]["omega/purity"] == found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_polite_signal_saves_and_names_the_command_that_continues(
    tmp_path: Path, undisturbed: Path, number: signal.Signals
) -> None:
    out = tmp_path / "run"
    process = start(out)
    process.wait_for(out / "checkpoints" / "epoch-0001-step-000000.pt")
    process.send_signal(number)
    error = process.wait()
    assert process.returncode == 128 + number, error
    assert f"csml pretrain --resume {out}" in error
    assert error.count("stopping after this step") == 1 and "Traceback" not in error
    resumed = csml("pretrain", "--resume", str(out))
    assert resumed.returncode == 0, resumed.stderr
    assert_runs_equal(out, undisturbed)


def test_a_signal_to_the_whole_group_reaches_the_workers_too_and_still_saves(tmp_path: Path) -> None:
    """Ctrl-C and a cluster's scheduler signal every process of the run."""
    photos = tmp_path / "photos"
    noise_photos(photos, 300)
    out = tmp_path / "run"
    more = ["--data", str(photos), "--images.workers", "1", "--epochs", "50"]
    process = start(out, *more)
    process.wait_for(out / "checkpoints" / "epoch-0001-step-000002.pt")
    os.killpg(process.pid, signal.SIGTERM)
    error = process.wait()
    assert process.returncode == 128 + signal.SIGTERM, error
    assert f"csml pretrain --resume {out}" in error
    assert "Traceback" not in error


def test_the_same_seed_repeats_a_run_and_another_does_not(tmp_path: Path, undisturbed: Path) -> None:
    for seed, same in (("0", True), ("1", False)):
        out = tmp_path / seed
        assert csml("pretrain", *SMALL_RUN, *OFTEN, "--out", str(out), "--seed", seed).returncode == 0
        ours, theirs = final_state(out)["method"], final_state(undisturbed)["method"]
        name = "query_encoder.backbone.conv1.weight"
        assert torch.equal(ours[name], theirs[name]) is same


def test_a_resumed_run_refuses_other_settings(undisturbed: Path) -> None:
    done = csml("pretrain", "--resume", str(undisturbed), "--contrast.temperature", "0.1")
    assert done.returncode == 2
    assert "contrast.temperature" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_resuming_a_finished_run_changes_nothing(undisturbed: Path) -> None:
    before = (undisturbed / "metrics.jsonl").read_text()
    done = csml("pretrain", "--resume", str(undisturbed))
    assert done.returncode == 0, done.stderr
    assert "were trained before" in done.stderr
    assert (undisturbed / "metrics.jsonl").read_text() == before


def test_old_checkpoints_are_removed(undisturbed: Path) -> None:
    assert len(list((undisturbed / "checkpoints").glob("*.pt"))) == 2
    assert len(list((undisturbed / "checkpoints").iterdir())) == 4  # each with its checksum


def test_a_run_has_one_writer(tmp_path: Path) -> None:
    """Neither resuming nor overwriting disturbs a run that is being written; the writer goes on undisturbed."""
    out = tmp_path / "run"
    process = start(out)
    process.wait_for(out / "checkpoints" / "epoch-0000-step-000002.pt")
    for words in (["--resume", str(out)], [*SMALL_RUN, "--out", str(out), "--overwrite"]):
        refused = csml("pretrain", *words)
        assert refused.returncode == 2
        assert "is being written by another csml (" in refused.stderr and f"process {process.pid}" in refused.stderr
    assert process.wait() is not None and process.returncode == 0, process.printed
    assert [record["epoch"] for record in read_metrics(out / "metrics.jsonl")] == [1, 2, 3]
    assert not (out / ".lock").exists()


def test_a_run_killed_while_it_starts_can_be_started_again(tmp_path: Path) -> None:
    """Whatever a kill leaves in the directory, the same command or --overwrite works."""
    out = tmp_path / "run"
    out.mkdir()
    (out / ".lock").write_text("{")
    assert csml("pretrain", *SMALL_RUN, "--epochs", "1", "--out", str(out)).returncode == 0
    for path in sorted(out.iterdir()):  # as a kill leaves it in the middle of deleting: settings are deleted last
        if path.name != "config.yaml":
            assert shutil.rmtree(path) is None if path.is_dir() else path.unlink() is None
    again = csml("pretrain", *SMALL_RUN, "--epochs", "1", "--out", str(out), "--overwrite")
    assert again.returncode == 0, again.stderr
