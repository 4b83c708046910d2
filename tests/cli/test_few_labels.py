"""From a backbone and a handful of labels to predictions: finetune, mine, predict, embed, neighbors."""

import csv
import json
import math
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

import csml.synthetic as synthetic
from conftest import csml
from csml.runs.metrics import read_metrics
from started import Started

FINETUNE = [
    "--how", "paper", "--fraction", "0.4", "--epochs", "3", "--batch_size", "20", "--head_lr_per_256", "1",
    "--optimizer.lr_per_256", "0.1", "--monitor.tensorboard", "false", "--checkpoint.every_steps", "1",
]  # fmt: skip
MINE = ["--epochs", "2", "--batch_size", "32", "--monitor.tensorboard", "false", "--checkpoint.every_steps", "1"]


@pytest.fixture(scope="module")
def tuned(small_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finetune") / "run"
    done = csml("finetune", str(small_run), *FINETUNE, "--out", str(out))
    assert done.returncode == 0, done.stderr
    return out


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_fine_tuning_leaves_a_classifier_its_labels_and_its_accuracy(tuned: Path) -> None:
    result = json.loads((tuned / "finetune.json").read_text())
    assert 0 <= result["top1"] <= result["top5"] <= 1
    assert result["labels"] == 60
    table = np.array(result["confusion"])
    assert table.shape == (10, 10)
    assert table.sum() == 50
    assert table.trace() / 50 == pytest.approx(result["top1"])
    assert result["best_top1"] == max(record["top1"] for record in read_metrics(tuned / "metrics.jsonl"))
    labels = rows(tuned / "labels.csv")
    assert len(labels) == 60
    counts = [sum(row["label"] == name for row in labels) for name in synthetic.CLASS_NAMES]
    assert counts == [6] * 10
    for name in ("classifier.safetensors", "best.safetensors", "backbone.safetensors"):
        assert (tuned / name).exists()


def test_both_learning_rates_are_really_applied(small_run: Path, tmp_path: Path) -> None:
    """A backbone with a vanishing rate stays as it was, while the head moves; and the other way round."""
    from csml import load_backbone
    from csml.weights import load_classifier

    before = load_backbone(small_run).state_dict()
    for backbone_lr, head_lr, moves in (("1e-30", "1", False), ("0.1", "1e-30", True)):
        out = tmp_path / backbone_lr
        rates = ["--optimizer.lr_per_256", backbone_lr, "--head_lr_per_256", head_lr]
        done = csml("finetune", str(small_run), *FINETUNE, *rates, "--epochs", "1", "--out", str(out))
        assert done.returncode == 0, done.stderr
        classifier, _ = load_classifier(out)
        after = classifier.backbone.state_dict()
        assert (not torch.equal(after["layer4.0.conv1.weight"], before["layer4.0.conv1.weight"])) is moves
        assert (classifier.fc.bias.abs().sum().item() > 1e-6) is not moves


def test_sigkill_in_the_middle_changes_nothing(small_run: Path, tuned: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = Started("finetune", str(small_run), *FINETUNE, "--out", str(out))
    process.wait_for(out / "checkpoints" / "epoch-0001-step-000001.pt")
    process.kill()
    resumed = csml("finetune", "--resume", str(out))
    assert resumed.returncode == 0, resumed.stderr
    for name in ("classifier.safetensors", "best.safetensors", "finetune.json", "labels.csv"):
        assert (out / name).read_bytes() == (tuned / name).read_bytes(), name


@pytest.fixture(scope="module")
def mined(tuned: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("mine") / "run"
    done = csml("mine", str(tuned), *MINE, "--max_entropy", "2.2", "--rounds", "2", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "are right" in done.stderr
    return out


def test_mining_tells_how_many_were_kept_and_how_many_are_right(mined: Path) -> None:
    for number in (1, 2):
        result = json.loads((mined / f"round-{number}" / "mine.json").read_text())
        found = result["mined"]
        assert found["unlabeled"] == 90
        assert found["kept"] == sum(found["kept_per_class"].values()) == result["labels"] - 60
        pseudo = rows(mined / f"round-{number}" / "pseudo_labels.csv")
        assert len(pseudo) == found["kept"]
        truth = {row["path"]: synthetic.CLASS_NAMES[int(row["path"].rsplit("/", 1)[1]) % 10] for row in pseudo}
        right = np.mean([truth[row["path"]] == row["label"] for row in pseudo])
        assert found["right"] == pytest.approx(right)


def test_mining_inherits_which_labels_there_are(mined: Path, tuned: Path) -> None:
    config = yaml.safe_load((mined / "config.yaml").read_text())
    assert (config["seed"], config["images"]["synthetic_train"]) == (0, 150)
    for number in (1, 2):
        labels = rows(mined / f"round-{number}" / "labels.csv")
        assert labels[:60] == rows(tuned / "labels.csv")
        assert rows(mined / f"round-{number}" / "tests.csv") == rows(tuned / "tests.csv")
    assert (mined / "classifier.safetensors").read_bytes() == (
        mined / "round-2" / "classifier.safetensors"
    ).read_bytes()


def test_a_mining_run_cut_off_in_its_second_round_goes_on(tuned: Path, mined: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = [*MINE, "--max_entropy", "2.2", "--rounds", "2", "--out", str(out)]
    process = Started("mine", str(tuned), *words)
    process.wait_for(out / "round-2" / "checkpoints" / "epoch-0000-step-000001.pt")
    process.send_signal(signal.SIGTERM)
    error = process.wait()
    assert process.returncode == 128 + signal.SIGTERM
    assert f"csml mine --resume {out}" in error
    resumed = csml("mine", "--resume", str(out))
    assert resumed.returncode == 0, resumed.stderr
    for name in ("classifier.safetensors", "mine.json", "pseudo_labels.csv"):
        assert (out / "round-2" / name).read_bytes() == (mined / "round-2" / name).read_bytes(), name


def test_a_mining_run_that_a_cluster_starts_again_keeps_its_rounds(
    tuned: Path, mined: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    shutil.copytree(mined, out)
    before = (out / "round-1" / "classifier.safetensors").stat().st_mtime_ns
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    again = csml("mine", str(tuned), *MINE, "--max_entropy", "2.2", "--rounds", "2", "--out", str(out))
    assert again.returncode == 0, again.stderr
    assert (out / "round-1" / "classifier.safetensors").stat().st_mtime_ns == before


def test_a_threshold_that_nothing_passes_is_told_with_the_nearest(tuned: Path, tmp_path: Path) -> None:
    done = csml("mine", str(tuned), *MINE, "--max_entropy", "1e-9", "--out", str(tmp_path / "run"))
    assert done.returncode == 2
    assert "max_entropy: no prediction is as certain" in done.stderr.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def thousand(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1 000 images in folders, five of them broken."""
    folder = tmp_path_factory.mktemp("thousand")
    for i in range(1000):
        picture = synthetic.draw_scene(32, np.array([i % 10]), np.random.default_rng(i)).image if i < 40 else None
        path = folder / f"part{i % 7}" / f"{i:04d}.png"
        path.parent.mkdir(exist_ok=True)
        if i in (17, 230, 555, 700, 999):
            path.write_bytes(b"broken")
        else:
            noise = np.random.default_rng(i).integers(0, 256, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(noise if picture is None else picture).save(path)
    return folder


def test_predicting_a_thousand_images_with_five_broken_ones_finishes_and_names_them(
    tuned: Path, thousand: Path, tmp_path: Path
) -> None:
    table = tmp_path / "labels.csv"
    done = csml("predict", str(tuned), str(thousand), "--output", str(table))
    assert done.returncode == 0, done.stderr
    found = rows(table)
    assert len(found) == 1000
    broken = sorted(row["path"] for row in found if row["error"])
    assert [Path(path).stem for path in sorted(broken, key=lambda path: Path(path).stem)] == [
        "0017", "0230", "0555", "0700", "0999",
    ]  # fmt: skip
    assert all(path in done.stderr for path in broken)
    assert "5 of them cannot be read" in done.stderr
    for row in found:
        if not row["error"]:
            assert row["label"] in synthetic.CLASS_NAMES
            assert 0.1 <= float(row["probability"]) <= 1
            assert 0 <= float(row["entropy"]) <= math.log(10) + 1e-3


def test_single_files_to_the_console_and_to_json_lines(tuned: Path, thousand: Path, tmp_path: Path) -> None:
    files = [str(thousand / "part0" / "0000.png"), str(thousand / "part1" / "0001.png")]
    done = csml("predict", str(tuned), *files)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "path,label,probability,entropy,error"
    assert len(lines) == 3
    done = csml("predict", str(tuned), *files, "--output", str(tmp_path / "out.jsonl"))
    read = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["path"] for row in read] == files
    assert read[0]["label"] == lines[1].split(",")[1]


def test_predicting_needs_a_classifier_and_images(small_run: Path, tuned: Path) -> None:
    done = csml("predict", str(small_run), ".")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    done = csml("predict", str(tuned), "/nowhere.png")
    assert done.returncode == 2
    assert "/nowhere.png" in done.stderr


def test_labels_of_a_few_files_are_enough(small_run: Path, thousand: Path, tmp_path: Path) -> None:
    """The whole loop on an unlabelled folder: name a few files, fine-tune, predict the rest."""
    table = tmp_path / "labels.csv"
    names = [(f"part{i % 7}/{i:04d}.png", "shape" if i < 17 else "noise") for i in [*range(12), *range(40, 52)]]
    table.write_text("path,label\n" + "".join(f"{path},{label}\n" for path, label in names))
    out = tmp_path / "run"
    words = ["--data", str(thousand), "--labels", str(table), "--images.workers", "0", "--out", str(out)]
    done = csml("finetune", str(small_run), *words)
    assert done.returncode == 0, done.stderr
    assert "24 labels of 2 classes" in done.stderr
    result = json.loads((out / "finetune.json").read_text())
    assert result["labels"] == 24 and "top1" not in result and "all 24 are used for training" in done.stderr
    assert result["expected"] > 0.7
    done = csml("predict", str(out), str(thousand / "part0"), "--output", str(tmp_path / "rest.csv"))
    assert done.returncode == 0, done.stderr
    assert len(rows(tmp_path / "rest.csv")) == 143


def test_features_go_to_a_matrix_with_its_rows_named(small_run: Path, thousand: Path, tmp_path: Path) -> None:
    out = tmp_path / "features.npy"
    done = csml("embed", str(small_run), "--data", str(thousand), "--output", str(out))
    assert done.returncode == 0, done.stderr
    matrix, named = np.load(out), rows(tmp_path / "features.csv")
    assert matrix.shape == (1000, 128)
    assert [int(row["id"]) for row in named] == list(range(1000))
    broken = [row["path"].endswith(("0017.png", "0230.png", "0555.png", "0700.png", "0999.png")) for row in named]
    assert np.array_equal(np.abs(matrix).sum(1) == 0, np.array(broken))
    done = csml("embed", str(small_run), "--data", str(thousand), "--output", str(out))
    assert done.returncode == 2
    assert "exists" in done.stderr


def test_features_go_to_parquet(small_run: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    for name in ("features.npy", "features.parquet"):
        done = csml("embed", str(small_run), "--output", str(tmp_path / name), "--stage", "3")
        assert done.returncode == 0, done.stderr
    table = parquet.read_table(tmp_path / "features.parquet")
    assert table.num_rows == 150
    np.testing.assert_array_equal(np.stack(table["features"].to_numpy()), np.load(tmp_path / "features.npy"))
    assert table["label"][13].as_py() == synthetic.CLASS_NAMES[3]


def test_neighbors_of_an_image_are_found_in_a_saved_index(small_run: Path, thousand: Path, tmp_path: Path) -> None:
    query = thousand / "part3" / "0003.png"
    words = [
        "neighbors",
        str(small_run),
        str(query),
        "--data",
        str(thousand),
        "--k",
        "5",
        "--index",
        str(tmp_path / "i"),
    ]
    first = csml(*words, "--sheet", str(tmp_path / "sheet.png"))
    assert first.returncode == 0, first.stderr
    lines = first.stdout.strip().splitlines()
    assert len(lines) == 5
    assert str(query) not in [line.split()[1] for line in lines]
    assert float(lines[0].split()[0]) >= float(lines[-1].split()[0])
    assert "saved in" in first.stderr and f"written to {tmp_path / 'sheet.png'}" in first.stderr
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.width > 6 * 56
    again = csml(*words)
    assert again.stdout == first.stdout
    assert "saved in" not in again.stderr  # it was read


def test_the_saved_index_agrees_with_an_exact_search(small_run: Path, thousand: Path, tmp_path: Path) -> None:
    from csml.search import nearest

    out = tmp_path / "features.npy"
    assert csml("embed", str(small_run), "--data", str(thousand), "--output", str(out)).returncode == 0
    features = torch.from_numpy(np.load(out))
    names = [row["path"] for row in rows(tmp_path / "features.csv")]
    query = names.index(str(thousand / "part5" / "0005.png"))
    done = csml("neighbors", str(small_run), names[query], "--data", str(thousand), "--k", "20",
                "--index", str(tmp_path / "i"))  # fmt: skip
    found = [line.split()[1] for line in done.stdout.strip().splitlines()]
    ids, _ = nearest(features[query : query + 1], features, 21)
    exact = [names[id] for id in ids[0].tolist() if id != query]
    assert len(set(found) & set(exact)) >= 19
