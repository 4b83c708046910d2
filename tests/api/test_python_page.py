"""docs/python.md runs as it stands there: in a fresh process and as a notebook, interruption included."""

import csv
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from PIL import Image

import csml
import csml.synthetic as synthetic
from conftest import assert_same, untimed
from csml.runs.checkpoint import load_newest
from csml.runs.metrics import read_metrics

PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """A place with photos/ in class folders, new/ and labels.csv."""
    rows = []
    for i in range(66):
        label = i % 3
        picture = Image.fromarray(synthetic.draw_scene(48, np.array([label]), np.random.default_rng(i)).image)
        name = f"{synthetic.CLASS_NAMES[label]}/{i}.jpg"
        for folder in ("photos", *(["new"] if i < 3 else [])):
            (tmp_path / folder / name).parent.mkdir(parents=True, exist_ok=True)
            picture.save(tmp_path / folder / name)
        if i < 18:
            rows.append([name, synthetic.CLASS_NAMES[label]])
    with (tmp_path / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["path", "label"], *rows])
    return tmp_path


def notebook(*cells: str) -> "nbformat.NotebookNode":
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])


def test_the_table_of_functions_has_them_all() -> None:
    _, table = PAGE.split("## All functions")
    shown = set(re.findall(r"`csml\.(\w+)\(", table))
    assert shown == {*csml.__all__} - {"CsmlError", "Interrupted", "__version__"}


def test_the_page_runs_in_a_fresh_process_and_prints_only_what_it_says(workplace: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(BLOCKS)], cwd=workplace, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "unknown key neighbours; did you mean neighbors?\n"
    assert done.stderr == ""
    assert (workplace / "runs" / "mine" / "backbone.safetensors").exists()
    assert (workplace / "runs" / "report.html").exists()


def test_a_script_without_a_terminal_sees_the_log_by_the_line_of_the_page(tmp_path: Path) -> None:
    (line,) = re.findall(r"^logging\.basicConfig\(.*$", PAGE, flags=re.MULTILINE)
    short = 'csml.pretrain("synthetic", **{**small, "epochs": 2})'
    script = f"import logging\n{line}\n{SMALL}{short}"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and done.stdout == "", done.stderr
    assert re.findall(r"^\d{4}-.* epoch (\d)/2  loss", done.stderr, flags=re.MULTILINE) == ["1", "2"]


SMALL = """
import csml
small = dict(preset="demo", model={"backbone": "nano"}, epochs=3, batch_size=32,
             monitor={"knn_every": 0, "tensorboard": False}, hardware={"threads": 1, "precision": "32-true"},
             checkpoint={"every_steps": 1}, **{"images.synthetic_train": 96, "images.synthetic_val": 32,
                "contrast.queue_length": 32,
                "neighbors.warmup_epochs": 1, "neighbors.refresh_every": 1})
"""
STOP = """
import os, signal, threading, time
from pathlib import Path

def stop():
    while not list(Path("stopped/checkpoints").glob("epoch-0001-step-000001.pt")):
        time.sleep(0.002)
    os.kill(os.getpid(), signal.SIGINT)  # what a notebook's stop button does

threading.Thread(target=stop, daemon=True).start()
csml.pretrain("synthetic", "stopped", **small)
"""


def test_a_notebook_shows_progress_and_a_stopped_run_resumes_bit_exactly(workplace: Path) -> None:
    book = notebook(
        SMALL + 'whole = csml.pretrain("synthetic", "whole", **small)\nwhole.metrics',
        STOP,
        'resumed = csml.pretrain(resume="stopped")\nprint(len(resumed.metrics))',
    )
    client = NotebookClient(book, timeout=300, resources={"metadata": {"path": str(workplace)}})
    with client.setup_kernel():
        first = client.execute_cell(book.cells[0], 0)
        shown = [output for output in first.outputs if "text/html" in output.get("data", {})]
        assert any("<progress" in str(output) or output["data"]["text/html"] == "" for output in shown)
        assert "<table" in str(shown[-1])
        with pytest.raises(CellExecutionError, match=r"Interrupted.*csml\.pretrain\(resume="):
            client.execute_cell(book.cells[1], 1)
        assert len(read_metrics(workplace / "stopped" / "metrics.jsonl")) == 1
        last = client.execute_cell(book.cells[2], 2)
        assert any(output.get("text", "").endswith("3\n") for output in last.outputs)
    one, two = (load_newest(workplace / name / "checkpoints") for name in ("whole", "stopped"))
    assert one is not None and two is not None
    for state in (one[1], two[1]):
        for key in ("seconds", "waited"):
            state.pop(key)
        state["searched"] = {}
    assert_same(one[1], two[1])
    assert untimed(workplace / "whole/metrics.jsonl") == untimed(workplace / "stopped/metrics.jsonl")
