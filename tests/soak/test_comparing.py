"""The soak must be able to fail: whatever is lost of a run is noticed, and what only the clock changes is not."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from csml.runs.checkpoint import save_checkpoint
from soak.comparing import Lost, compare
from soak.moments import Watch


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    """A small run and its copy."""
    run = tmp_path / "one"
    (run / "neighbors").mkdir(parents=True)
    (run / "metrics.jsonl").write_text(
        "".join(json.dumps({"epoch": e, "loss": 1.0, "seconds": e}) + "\n" for e in (1, 2))
    )
    (run / "backbone.safetensors").write_bytes(b"weights")
    (run / "neighbors" / "epoch-0002.npz").write_bytes(b"omega")
    (run / "labels.csv").write_text("path,label\na,b\n")
    (run / "table.md").write_text("| | 20-NN | minutes |\n|---|---|---|\n| CsMl | 50.0 | 1.0 |\n")
    save_checkpoint(run / "checkpoints", {"epoch": 2, "step": 0, "seconds": 1.0, "w": torch.zeros(2)}, 2, 0, keep=2)
    shutil.copytree(run, tmp_path / "two")
    return run, tmp_path / "two"


def replaced(name: str, old: str, new: str) -> Callable[[Path], object]:
    return lambda run: (run / name).write_text((run / name).read_text().replace(old, new))


def other_checkpoint(run: Path) -> None:
    save_checkpoint(run / "checkpoints", {"epoch": 2, "step": 0, "seconds": 1.0, "w": torch.ones(2)}, 2, 0, keep=2)


LOSSES: dict[str, Callable[[Path], object]] = {
    "weights": lambda run: (run / "backbone.safetensors").write_bytes(b"other"),
    "missing: ['neighbors": lambda run: (run / "neighbors" / "epoch-0002.npz").unlink(),
    "metrics": replaced("metrics.jsonl", '"loss": 1.0', '"loss": 1.5'),
    "labels": replaced("labels.csv", "a,b", "a,c"),
    "table": replaced("table.md", "50.0", "51.0"),
    "left behind": lambda run: (run / ".backbone.part-x").write_bytes(b"half"),
    "checkpoint": other_checkpoint,
}


@pytest.mark.parametrize("what", LOSSES)
def test_a_loss_is_noticed(runs: tuple[Path, Path], what: str) -> None:
    LOSSES[what](runs[1])
    with pytest.raises(Lost):
        compare(*runs)


def test_the_clock_makes_no_difference(runs: tuple[Path, Path]) -> None:
    replaced("metrics.jsonl", '"seconds": 2', '"seconds": 7')(runs[1])
    replaced("table.md", "1.0", "3.5")(runs[1])
    (runs[1] / ".lock").touch()
    compare(*runs)


def test_changes_of_files_are_counted_where_they_count(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    watch = Watch(tmp_path / "disk", tmp_path / "notes", None)
    watch.hear("open", (str(tmp_path / "disk" / "a"), "w", 1))
    watch.hear("open", (str(tmp_path / "disk" / "a"), "r", 0))
    watch.hear("os.rename", (str(tmp_path / "disk" / "a"), str(tmp_path / "disk" / "b"), -1, -1))
    watch.hear("os.remove", (str(tmp_path / "elsewhere"), -1))
    assert (tmp_path / "notes").read_text() == "open a\nos.rename a\n"
