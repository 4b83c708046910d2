"""Results beside their baselines: knn, linear, the end of a run; names in the place of weights."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import csml as library
from conftest import SMALL_RUN, csml, noise_photos
from csml.config import ImagesConfig
from csml.models.backbones import build_backbone
from csml.runs.directory import RunDirectory
from csml.weights import network_of, save_backbone

SHORT = ["--images.synthetic_train", "120", "--images.synthetic_val", "60"]


@pytest.fixture
def copy(small_run: Path, tmp_path: Path) -> Path:
    """A finished run that a test may change."""
    return Path(shutil.copytree(small_run, tmp_path / "run"))


def test_a_run_that_has_learnt_nothing_is_told_so(copy: Path) -> None:
    network = network_of(copy)
    empty = build_backbone(network.backbone, network.small_images)
    with torch.no_grad():
        for values in empty.parameters():
            values.zero_()
    save_backbone(RunDirectory(copy).backbone, empty, network, ImagesConfig(size=32, eval_crop=1.0))
    done = csml("knn", str(copy))
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stderr.splitlines() if "is below" in line)
    assert "raw pixels" in line and "try --model.weights lite0" in line
    found = json.loads((copy / "knn.json").read_text())["baselines"]
    assert set(found["accuracy"]) == {"chance", "pixels", "untrained"}
    assert f"{found['accuracy']['pixels']['20']:.1%}" in done.stdout and "untrained network" in done.stdout


def test_a_linear_probe_is_compared_where_that_is_cheap(copy: Path) -> None:
    shutil.copy(copy / "backbone.safetensors", copy / "start.safetensors")
    words = ["linear", str(copy), "--epochs", "2", "--milestones", "[1]", "--stages", "[3, 4]"]
    done = csml(*words, "--augment", "false")
    assert done.returncode == 0, done.stderr
    result = json.loads((copy / "linear.json").read_text())
    scores = result["baselines"]["top1"]
    assert set(scores) == {"chance", "untrained", "start"}
    # The start is the run itself, so the same probe must find the same.
    assert scores["start"] == {stage: found["top1"] for stage, found in result["stages"].items()}
    assert "starting weights" in done.stdout
    assert csml(*words, "--augment", "true", "--epochs", "1").returncode == 0
    assert set(json.loads((copy / "linear.json").read_text())["baselines"]["top1"]) == {"chance"}


def test_a_run_says_what_to_beat_before_and_how_far_it_got_after(small_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "further"
    words = [*SMALL_RUN, *SHORT, "--epochs", "1", "--monitor.baselines", "true", "--model.weights", str(small_run)]
    done = csml("pretrain", *words, "--out", str(out))
    assert done.returncode == 0, done.stderr
    said = done.stderr.splitlines()
    before, trained, after = (
        next(place for place, line in enumerate(said) if word in line)
        for word in ("baselines, 20-NN: largest class", "epoch 1/1", "20-NN of the run: ")
    )
    assert before < trained < after
    judged = json.loads((out / "knn.json").read_text())
    scores = judged["baselines"]["accuracy"]
    assert list(scores) == ["chance", "pixels", "untrained", "start"]
    assert f"starting weights {scores['start']['20']:.1%}" in said[before]
    assert f"{judged['accuracy']['20']:.1%}" in said[after]
    kept = (out / "baselines.json").stat().st_mtime_ns
    assert csml("knn", str(out)).returncode == 0
    assert json.loads((out / "knn.json").read_text())["baselines"] == judged["baselines"]
    assert (out / "baselines.json").stat().st_mtime_ns == kept
    started = csml("knn", str(out / "start.safetensors"), *SHORT, "--data", "synthetic", "--baselines", "false")
    assert started.returncode == 0, started.stderr
    assert f"20-NN  {scores['start']['20']:.1%}" in started.stdout


def test_pixels_and_untrained_networks_are_judged_by_name(tmp_path: Path) -> None:
    for name, file in (("pixels", "knn-pixels.json"), ("random:nano", "knn-random-nano.json")):
        done = csml("knn", name, "--data", "synthetic", *SHORT, "--images.size", "32", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert json.loads((tmp_path / file).read_text())["weights"] == name
    assert "is below" not in done.stderr
    unknown = csml("knn", "random:resnet7", cwd=tmp_path)
    assert unknown.returncode == 2 and "resnet7" in unknown.stderr


def test_names_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 2
    pixels = np.clip(120 * labels[:, None, None, None] + rng.integers(0, 80, (60, 40, 40, 3)), 0, 255).astype(np.uint8)
    judged = library.knn("pixels", data=(pixels, labels), k=[5])
    assert judged.accuracy == {5: 1.0} and judged.baselines["chance"][5] == pytest.approx(0.5)
    assert judged.path == Path("knn-pixels.json")
    features, _ = library.embed("pixels", pixels)
    assert features.shape == (60, 3 * 32 * 32)


def test_after_a_run_on_a_folder_nothing_computes_its_features_again(tmp_path: Path) -> None:
    noise_photos(tmp_path / "photos", 12)
    words = ["pretrain", *SMALL_RUN, "--data", "photos", "--epochs", "1", "--batch_size", "6", "--images.size", "16"]
    words += ["--contrast.queue_length", "6", "--neighbors.k", "2"]
    for name, more in (("run", []), ("without", ["--monitor.keep_features", "false", "--seed", "1"])):
        done = csml("pretrain", *words[1:], *more, "--out", name, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        asked = csml("select", name, "3", "--output", f"{name}.csv", cwd=tmp_path)
        assert asked.returncode == 0, asked.stderr
        assert ("features of 12 of 12 images were computed before" in asked.stderr) == (name == "run")
