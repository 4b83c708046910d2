"""`csml.pretrain` from Python: settings, data in memory, errors, workers; the same run as the command line makes."""

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import csml
from conftest import SMALL_RUN
from conftest import csml as command
from csml.api.pretraining import pretrain_config
from csml.errors import CsmlError

SETTINGS: dict[str, Any] = {
    "images": {"synthetic_train": 150, "synthetic_val": 50},
    "contrast.queue_length": 64,
    "neighbors": {"warmup_epochs": 1, "refresh_every": 1, "keep": 1},
    "monitor": {"knn_every": 1, "tensorboard": False},
    "model.backbone": "nano",
    "hardware": {"threads": 1},
}
"""SMALL_RUN as keywords."""
TINY: dict[str, Any] = {
    "preset": "demo",
    "epochs": 1,
    "batch_size": 16,
    "contrast.queue_length": 16,
    "monitor": {"knn_every": 1, "tensorboard": False},
    "hardware": {"threads": 1},
}


def test_it_makes_the_run_of_the_command_line(small_run: Path, tmp_path: Path) -> None:
    run = csml.pretrain(out=tmp_path / "run", preset="demo", epochs=3, batch_size=32, **SETTINGS)
    assert run.path == tmp_path / "run" and run.verb == "pretrain"
    assert (run.path / "backbone.safetensors").read_bytes() == (small_run / "backbone.safetensors").read_bytes()
    assert run.metrics["loss"] == csml.Run(small_run).metrics["loss"]
    assert run.config.neighbors.warmup_epochs == 1


def test_a_preset_is_fitted_to_a_handful_of_images(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    images = np.random.default_rng(0).integers(0, 256, (9, 32, 32, 3), dtype=np.uint8)
    settings = {key: value for key, value in TINY.items() if key != "batch_size"}
    with caplog.at_level("INFO", "csml"):
        run = csml.pretrain(images, tmp_path / "run", **settings)
    assert (run.config.batch_size, run.config.neighbors.k) == (4, 8)
    assert "batch_size: 4 instead of 64, because there are 9 images" in caplog.text
    assert "neighbors.k: 8 instead of 10, because there are 9 images" in caplog.text


def test_keywords_nested_dotted_and_words_are_the_same_settings() -> None:
    from conftest import configured

    nested = pretrain_config("synthetic", preset="demo", neighbors={"k": 3, "keep": 0.5}, epochs=2)
    dotted = pretrain_config(preset="demo", **{"neighbors.k": 3, "neighbors.keep": 0.5, "epochs": 2})
    typed = configured("pretrain", "--preset", "demo", "--neighbors.k", "3", "--neighbors.keep", "0.5", "--epochs", "2")
    assert nested == dotted == typed


def test_null_is_a_value_and_wins_over_the_preset() -> None:
    """The preset demo has a queue of 1024; null is the default, a length from the number of images."""
    from conftest import configured

    assert pretrain_config(preset="demo").contrast.queue_length == 1024
    typed = configured("pretrain", "--preset", "demo", "--contrast.queue_length", "null")
    called = pretrain_config(preset="demo", **{"contrast.queue_length": None})
    assert typed == called and typed.contrast.queue_length is None
    with pytest.raises(CsmlError, match="epochs: expected a whole number, got null"):
        pretrain_config(preset="demo", epochs=None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": "many"}, "epochs: expected a whole number, got many"),
        ({"epochs": 0}, "epochs: at least 1, not 0"),
        ({"neighbours": {"k": 5}}, "unknown key neighbours; did you mean neighbors?"),
        ({"neighbors": 5}, "neighbors: expected settings such as neighbors.k, got 5"),
        ({"preset": "imagnet"}, "preset: 'imagnet' is unknown"),
        ({"data": "nowhere"}, "data: there is no folder"),
        ({"data": 3.5}, "data: expected a folder, an array of images or a dataset, got float"),
        ({"resume": "nowhere"}, "nowhere is not a run directory"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(CsmlError) as caught:
        csml.pretrain(out=tmp_path / "run", **{"preset": "demo", **settings} if "resume" not in settings else settings)
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def pictures(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)


class Photos(torch.utils.data.Dataset[tuple[Image.Image, int]]):
    """Items as torchvision's datasets have them."""

    def __init__(self, pixels: np.ndarray, labels: list[int]) -> None:
        self.pixels, self.labels = pixels, labels

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, id: int) -> tuple[Image.Image, int]:
        return Image.fromarray(self.pixels[id]), self.labels[id]


def test_arrays_and_datasets_of_the_same_images_give_the_same_backbone(tmp_path: Path) -> None:
    pixels, labels = pictures(40), [i % 2 for i in range(40)]
    forms = {
        "array": pixels,
        "tensor": torch.from_numpy(pixels).permute(0, 3, 1, 2),
        "labelled": (pixels, labels),
    }
    runs = {name: csml.pretrain(data, tmp_path / name, **TINY) for name, data in forms.items()}
    weights = {(run.path / "backbone.safetensors").read_bytes() for run in runs.values()}
    assert len(weights) == 1
    assert "knn20" in runs["labelled"].metrics.columns and "knn20" not in runs["array"].metrics.columns
    dataset = csml.pretrain(Photos(pixels, labels), tmp_path / "dataset", **TINY)
    assert dataset.metrics["loss"] == pytest.approx(runs["array"].metrics["loss"], rel=0.05)  # PIL resizes, not torch
    assert dataset.knn(k=[5]).tested == 8
    with pytest.raises(CsmlError, match="passed in memory"):
        csml.Run(dataset.path).knn()
    assert csml.Run(dataset.path).knn(data=(pixels, labels), k=[5]).tested == 8
    features, paths = dataset.embed()
    assert features.shape == (40, 192) and len(paths) == 40


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.zeros((4, 5), np.uint8), "(N, H, W, 3)"),
        (np.zeros((4, 8, 8, 3), np.int64), "uint8"),
        (np.full((4, 8, 8, 3), 2.0), "[0, 1]"),
        ((np.zeros((4, 8, 8, 3), np.uint8), [1, 2]), "2 labels for 4 images"),
        ([], "empty"),
    ],
)
def test_images_in_memory_of_another_form_are_refused(data: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(CsmlError) as caught:
        csml.pretrain(data, tmp_path / "run", **TINY)
    assert message in str(caught.value)


def test_two_workers_are_children_and_do_what_one_process_does(tmp_path: Path) -> None:
    """In a process of its own without a main guard: neither is it replaced, nor run again by its workers."""
    same = {
        **TINY,
        "hardware": {"threads": 1, "precision": "32-true"},
        "monitor": {"knn_every": 0, "tensorboard": False},
    }
    one = csml.pretrain(pictures(48), tmp_path / "one", **same)
    script = tmp_path / "script.py"
    (tmp_path / "arguments").write_bytes(pickle.dumps((pictures(48), same)))
    script.write_text(
        "import os, pickle, csml\n"
        "open('started', 'a').write('x')\n"
        "pixels, settings = pickle.load(open('arguments', 'rb'))\n"
        "settings['hardware']['devices'] = 2\n"
        "run = csml.pretrain(pixels, 'two', **settings)\n"
        "print(os.getpid(), run.metrics['loss'][0])\n"
        "try:\n"
        "    csml.pretrain(pixels, 'two', **settings)\n"
        "except csml.CsmlError as error:\n"
        "    print(error)\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(script)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0 and err == "", err
    (pid, loss), error = out.splitlines()[0].split(), out.splitlines()[1]
    assert int(pid) == process.pid and (tmp_path / "started").read_text() == "x"
    assert float(loss) == pytest.approx(one.metrics["loss"][0], rel=1e-4)
    assert error == "out: two exists; choose another, continue it with --resume two, or give --overwrite"


def test_the_command_line_is_a_thin_skin(tmp_path: Path) -> None:
    """A run of the command and one of the verb can be told apart only by what run.json says about the call."""
    words = [*SMALL_RUN, "--epochs", "1", "--monitor.knn_every", "0"]
    assert command("pretrain", *words, "--out", str(tmp_path / "typed")).returncode == 0
    settings = {**SETTINGS, "monitor": {"knn_every": 0, "tensorboard": False, "baselines": False}}
    csml.pretrain(out=tmp_path / "called", preset="demo", epochs=1, batch_size=32, **settings)
    one, two = ((tmp_path / name / "config.yaml").read_text() for name in ("typed", "called"))
    assert one.replace("typed", "called") == two
