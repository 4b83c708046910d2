"""examples/: the short version of the method computes what the long one does, and the notebook runs."""

import runpy
from pathlib import Path

import nbformat
import pytest
import torch
from nbclient import NotebookClient

import csml
from csml.api.pretraining import pretrain_config
from csml.data.open import open_data

EXAMPLES = Path(__file__).parent.parent / "examples"
SMALL = {
    "images.synthetic_train": 96,
    "images.synthetic_val": 32,
    "batch_size": 32,
    "contrast.queue_length": 64,
    "epochs": 3,
    "neighbors.warmup_epochs": 1,
    "neighbors.refresh_every": 1,
    "model.backbone": "nano",
}
"""Neighbours are searched twice."""
FLOAT32 = {"hardware.precision": "32-true", "hardware.threads": 1, "monitor.knn_every": 0, "monitor.baselines": False}


def test_the_minimal_example_is_the_preset_to_the_last_bit(tmp_path: Path) -> None:
    assert len((EXAMPLES / "minimal.py").read_text().splitlines()) <= 150
    torch.set_num_threads(1)
    run = csml.pretrain("synthetic", tmp_path / "run", preset="demo", **SMALL, **FLOAT32)
    config = pretrain_config("synthetic", preset="demo", **SMALL)
    train = runpy.run_path(str(EXAMPLES / "minimal.py"))["train"]
    encoder, losses = train(config, open_data(config.data, config.images).train)
    means = [sum(losses[start : start + 3]) / 3 for start in (0, 3, 6)]
    assert run.metrics["loss"] == pytest.approx(means, abs=1e-6)
    learnt = encoder.backbone.state_dict()
    for name, value in run.backbone().state_dict().items():
        assert torch.equal(value, learnt[name]), name


def test_the_notebook_runs_from_the_first_cell_to_the_last(tmp_path: Path) -> None:
    book = nbformat.read(EXAMPLES / "quickstart.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in book.cells), "it is kept without outputs"
    NotebookClient(book, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = "".join(output.get("text", "") for cell in book.cells for output in cell.get("outputs", []))
    assert "of 60 pictures are right, from 15 labels" in printed and "(60, " in printed
    assert (tmp_path / "quickstart" / "tuned" / "classifier.safetensors").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["quickstart"], (
        "a run in one's own folder changes nothing there"
    )
