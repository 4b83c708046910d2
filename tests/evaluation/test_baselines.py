"""What results are compared with: pixels by a vote in numpy, chance, what is kept and when it is computed again."""

import json
from pathlib import Path

import numpy as np
import pytest
from lightning_fabric import Fabric
from PIL import Image

import csml.evaluation.baselines as baselines
from csml.config import BackboneConfig, ImagesConfig, KnnConfig
from csml.data.images import ArrayImages, Images
from csml.data.open import open_data
from csml.evaluation.baseline_comparison import in_words, shortfall
from csml.evaluation.baselines import baselines_of_run, baselines_of_weights
from csml.runs.directory import RunDirectory

NANO = BackboneConfig("nano", small_images=True)
KNN = KnnConfig(k=(5, 20), images=ImagesConfig(size=16, eval_crop=1.0, workers=0))


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    return Fabric(accelerator="cpu", devices=1, precision="32-true")


def pictures(count: int, seed: int, side: int = 32, channels: int = 3) -> ArrayImages:
    """Noise around a picture of its own for each of four classes, unequal in number."""
    rng = np.random.default_rng(seed)
    labels = np.sort(rng.choice(4, count, p=(0.4, 0.3, 0.2, 0.1)))
    centers = 128 + np.random.default_rng(99).normal(0, 5, (4, side, side, channels))
    pixels = np.clip(centers[labels] + rng.normal(0, 60, (count, side, side, channels)), 0, 255).astype(np.uint8)
    return ArrayImages(pixels, labels.astype(np.int64), ("a", "b", "c", "d"), f"noise-{seed}-{side}")


def vote_by_pixels(train: ArrayImages, val: ArrayImages, k: int) -> float:
    """The weighted vote, one test image after the other, in float64."""
    mean = train.pixels.reshape(len(train), -1).astype(np.float64).mean(axis=0)
    known, asked = (images.pixels.reshape(len(images), -1) - mean for images in (train, val))
    right = 0
    for picture, label in zip(asked, val.labels, strict=True):
        cosines = known @ picture / (np.linalg.norm(known, axis=1) * np.linalg.norm(picture))
        votes = np.zeros(4)
        for near in np.argsort(-cosines)[:k]:
            votes[train.labels[near]] += np.exp(cosines[near] / 0.07)
        right += int(votes.argmax() == label)
    return right / len(val)


@pytest.mark.parametrize("channels", [3, 5])
def test_raw_pixels_vote_as_in_numpy(fabric: Fabric, channels: int) -> None:
    train, val = (pictures(count, seed, channels=channels) for count, seed in ((200, 0), (100, 1)))
    scores = baselines_of_weights("random:nano", train, val).by_knn(KNN, fabric)["accuracy"]
    assert scores["pixels"] == {str(k): pytest.approx(vote_by_pixels(train, val, k)) for k in (5, 20)}
    assert 0.4 < scores["pixels"]["20"] < 0.95  # neither hopeless nor trivial: a wrong vote would show


def test_chance_is_the_largest_class_of_the_training_images(fabric: Fabric) -> None:
    train, val = pictures(200, 0), pictures(100, 1)
    largest = np.bincount(train.labels).argmax()
    found = baselines_of_weights("pixels", train, val).by_knn(KNN, fabric)
    assert found["accuracy"] == {"chance": dict.fromkeys(("5", "20"), float((val.labels == largest).mean()))}
    assert (found["trained_on"], found["tested"]) == (200, 100)


def colours(root: Path) -> tuple[Images, Images]:
    """A folder of red and of blue pictures."""
    rng = np.random.default_rng(0)
    for name, colour in (("red", (255, 0, 0)), ("blue", (0, 0, 255))):
        (root / name).mkdir(parents=True, exist_ok=True)
        for i in range(10):
            noise = rng.integers(0, 100, (20, 20, 3))
            Image.fromarray(np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8)).save(root / name / f"{i}.png")
    return opened(root)


def opened(root: Path) -> tuple[Images, Images]:
    splits = open_data(str(root), ImagesConfig(size=16))
    assert splits.labeled is not None and splits.val is not None
    return splits.labeled, splits.val


def test_scores_are_kept_in_the_run_until_an_image_changes(tmp_path: Path, fabric: Fabric) -> None:
    run = RunDirectory(tmp_path / "run")
    train, val = colours(tmp_path / "photos")
    first = baselines_of_run(NANO, run, train, val).by_knn(KNN, fabric)["accuracy"]
    assert first["pixels"] == {"5": 1.0, "20": pytest.approx(1.0)}
    marked = {key: {"5": 0.125, "20": 0.25} for key in json.loads(run.baselines.read_text())}
    assert len(marked) == 2  # pixels, untrained
    run.baselines.write_text(json.dumps(marked))
    again = baselines_of_run(NANO, run, train, val).by_knn(KNN, fabric)["accuracy"]
    assert again["pixels"] == again["untrained"] == {"5": 0.125, "20": 0.25}
    (tmp_path / "photos" / "red" / "0.png").write_bytes((tmp_path / "photos" / "red" / "1.png").read_bytes() + b"\0")
    changed = baselines_of_run(NANO, run, *opened(tmp_path / "photos")).by_knn(KNN, fabric)["accuracy"]
    assert changed["pixels"] == first["pixels"]


def test_a_damaged_file_is_computed_again(tmp_path: Path, fabric: Fabric) -> None:
    run = RunDirectory(tmp_path)
    train, val = pictures(60, 0), pictures(30, 1)
    first = baselines_of_run(NANO, run, train, val).by_knn(KNN, fabric)
    run.baselines.write_text('{"half')
    assert baselines_of_run(NANO, run, train, val).by_knn(KNN, fabric) == first


def test_of_many_images_a_fixed_sample_is_judged_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, fabric: Fabric
) -> None:
    monkeypatch.setattr(baselines, "MOST_IMAGES", 50)
    train, val = pictures(200, 0), pictures(40, 1)
    found = baselines_of_weights("random", train, val)
    assert (len(found.train), len(found.val)) == (50, 40)
    assert found.notes == ("baselines are computed on a fixed sample of 50 of the 200 training images",)
    assert set(found.train.labels.tolist()) == {0, 1, 2, 3}


def test_what_is_better_is_named_the_best_first(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.config.write_text("framework: contrast\n")
    scores = {"chance": 0.238, "pixels": 0.516, "untrained": 0.375}
    assert in_words(scores) == "largest class 23.8%, raw pixels 51.6%, untrained network 37.5%"
    line = shortfall(str(tmp_path), "20-NN", 0.393, scores)
    assert line is not None and line.startswith(
        "20-NN 39.3% is below raw pixels (51.6%): the run has learnt too little"
    )
    assert "--model.weights lite0" in line
    worse = shortfall(str(tmp_path), "20-NN", 0.5, {**scores, "start": 0.762})
    assert worse is not None and "below starting weights (76.2%) and raw pixels (51.6%)" in worse
    assert str(run.start) in worse
    assert shortfall(str(tmp_path), "20-NN", 0.516, scores) is None  # not below
    assert shortfall(str(tmp_path), "20-NN", 0.5, scores, tested=100) is None  # a standard error is 0.05
    assert shortfall(str(tmp_path), "20-NN", 0.4, scores, tested=100) is not None
    assert shortfall("random", "20-NN", 0.1, scores) is None  # nobody expects more of it
