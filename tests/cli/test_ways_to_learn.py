"""finetune --how: what each way leaves behind, and what predict says about it."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import csml.synthetic as synthetic
from conftest import configured, csml
from csml.config import PRESETS, FinetuneConfig, configure, preset_settings
from csml.runs.settings import read_settings
from csml.runs.trust import read_trust
from csml.weights import load_classifier

QUICK = ["--monitor.tensorboard", "false", "--hardware.precision", "32-true", "--images.workers", "0"]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Dark, medium and light pictures, which any network tells apart, in train/ and val/."""
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for split, count in (("train", 12), ("val", 8)):
        for label, light in (("dark", 20), ("medium", 110), ("light", 220)):
            for i in range(count):
                path = folder / split / label / f"{split}{i}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                pixels = np.clip(light + rng.normal(0, 25, (32, 32, 3)), 0, 255)
                Image.fromarray(pixels.astype(np.uint8)).save(path)
    return folder


def learn(small_run: Path, photos: Path, out: Path, *words: str) -> dict[str, object]:
    done = csml("finetune", str(small_run), "--data", str(photos), *QUICK, *words, "--out", str(out))
    assert done.returncode == 0, done.stderr
    result: dict[str, object] = json.loads((out / "finetune.json").read_text())
    return {**result, "said": done.stderr}


@pytest.fixture(scope="module")
def learnt(small_run: Path, photos: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, object]]:
    out = tmp_path_factory.mktemp("auto") / "run"
    return out, learn(small_run, photos, out, "--per_class", "5")


def test_auto_says_what_it_tried_and_leaves_a_calibrated_classifier(learnt: tuple[Path, dict[str, object]]) -> None:
    out, result = learnt
    tried = result["tried"]
    assert isinstance(tried, list) and [row["how"] for row in tried] == ["spread", "logistic", "prototypes"]
    assert result["labels"] == 15 and result["how"] in ("spread", "logistic", "prototypes")
    assert "Cross-validation on 15 labels" in str(result["said"]) and "chosen" in str(result["said"])
    assert all(f"{row['accuracy']:.1%}" in str(result["said"]) for row in tried)
    # Chance is 0.33.
    assert result["top1"] > 0.6 and 0 <= result["ece"] <= 1  # type: ignore[operator]
    classifier, facts = load_classifier(out)
    assert classifier.unit and facts["unit"]
    weights = classifier.fc.weight.norm(dim=1)
    if result["how"] == "prototypes":
        torch.testing.assert_close(weights, torch.full_like(weights, 1 / result["temperature"]))  # type: ignore[operator]
    assert not (out / "folds").exists()


def test_predict_says_how_far_to_trust_it(learnt: tuple[Path, dict[str, object]], photos: Path, tmp_path: Path) -> None:
    out, _ = learnt
    done = csml("predict", str(out), str(photos / "val"), "--output", str(tmp_path / "found.csv"))
    assert done.returncode == 0, done.stderr
    with (tmp_path / "found.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["familiar"] for row in rows} <= {"yes", "no"}
    trust = read_trust(out / "trust.safetensors")
    assert trust is not None and trust.accuracy is not None and trust.error is not None
    mean = 100 * np.mean([float(row["probability"]) for row in rows])
    assert f"{mean:.0f} % by the probabilities" in done.stderr
    assert f"{100 * trust.accuracy:.0f} % ± {100 * trust.error:.0f}" in done.stderr
    assert "unlike" not in done.stderr


def test_images_unlike_the_labelled_ones_are_told(learnt: tuple[Path, dict[str, object]], tmp_path: Path) -> None:
    for i in range(10):
        picture = synthetic.draw_scene(32, np.array([i % 10]), np.random.default_rng(i)).image
        Image.fromarray(picture).save(tmp_path / f"{i}.png")
    done = csml("predict", str(learnt[0]), str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "are unlike every labelled image" in done.stderr
    assert ",no," in done.stdout


def test_one_label_a_class_gives_a_classifier_without_promises(small_run: Path, photos: Path, tmp_path: Path) -> None:
    result = learn(small_run, photos, tmp_path / "run", "--per_class", "1")
    assert (result["how"], result["tried"], result["expected"]) == ("spread", [], None)
    assert "too few to compare" in str(result["said"])
    done = csml("predict", str(tmp_path / "run"), str(photos / "val"))
    assert "the accuracy is not known" in done.stderr


def test_labels_spread_only_where_there_are_images_without_a_label(
    small_run: Path, photos: Path, tmp_path: Path
) -> None:
    result = learn(small_run, photos, tmp_path / "run", "--tune_from", "1000")
    assert isinstance(result["tried"], list) and "spread" not in [row["how"] for row in result["tried"]]
    words = ("--data", str(photos), *QUICK, "--how", "spread", "--out", str(tmp_path / "other"))
    done = csml("finetune", str(small_run), *words)
    assert done.returncode == 2 and "how: spread needs images without a label" in done.stderr


def test_with_enough_labels_tuning_is_tried_on_the_same_folds(small_run: Path, photos: Path, tmp_path: Path) -> None:
    words = ("--tune_from", "6", "--per_class", "6", "--epochs", "1")
    result = learn(small_run, photos, tmp_path / "run", *words)
    tried = result["tried"]
    assert isinstance(tried, list)
    ways = ["spread", "logistic", "prototypes", "norms", "last-stage", "all"]
    assert [row["how"] for row in tried] == ways
    assert not (tmp_path / "run" / "folds").exists()


def test_a_tuned_network_moves_and_can_be_resumed_mined_and_exported(
    small_run: Path, photos: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    learn(small_run, photos, out, "--how", "last-stage", "--per_class", "4", "--epochs", "2")
    before, _ = load_classifier(out)
    from csml import load_backbone

    start = load_backbone(small_run).state_dict()
    assert torch.equal(before.backbone.conv1.weight, start["conv1.weight"])
    assert not torch.equal(before.backbone.layer4[0].conv1.weight, start["layer4.0.conv1.weight"])
    assert torch.equal(before.backbone.bn1.running_mean, start["bn1.running_mean"])
    weights = (out / "classifier.safetensors").read_bytes()
    (out / "classifier.safetensors").unlink()
    done = csml("finetune", "--resume", str(out))
    assert done.returncode == 0, done.stderr
    assert (out / "classifier.safetensors").read_bytes() == weights
    words = ["--max_entropy", "9", "--epochs", "1", *QUICK, "--out", str(tmp_path / "mined")]
    done = csml("mine", str(out), *words)
    assert done.returncode == 0, done.stderr
    assert load_classifier(tmp_path / "mined")[0].unit
    done = csml("export", str(out), "--to", "safetensors")
    assert done.returncode == 0, done.stderr


def test_the_paper_s_protocol_has_a_name_and_old_runs_are_of_it(learnt: tuple[Path, dict[str, object]]) -> None:
    assert FinetuneConfig().how == "auto"
    for name in PRESETS:
        made = configure(FinetuneConfig, preset_settings(name, "finetune"))
        assert made.how == ("auto" if name.startswith("photos") else "paper")
    out, _ = learnt
    assert read_settings(out)["how"] == "auto"
    config = out / "config.yaml"
    text = config.read_text()
    config.write_text(text.replace("how: auto\n", ""))
    assert read_settings(out)["how"] == "paper"
    config.write_text(text)


def test_fraction_and_per_class_exclude_each_other(small_run: Path) -> None:
    assert configured("finetune", str(small_run), "--per_class", "3").per_class == 3
    done = csml("finetune", str(small_run), "--per_class", "3", "--fraction", "0.1")
    assert done.returncode == 2
    assert "per_class: give either this or fraction, not both" in done.stderr
