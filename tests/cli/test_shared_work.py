"""Commands that several processes carry out together: each image counts once, one of them writes, results are one's."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import SMALL_RUN, csml, noise_photos
from csml.distributed.world import World
from csml.runs.checkpoint import load_newest
from csml.runs.metrics import read_metrics
from processes import together


def inside(world: World, *words: str) -> tuple[int, str, str]:
    done = csml(*words)
    return done.returncode, done.stdout, done.stderr


def both(*words: str) -> str:
    """What the first of two processes prints; the other must be silent."""
    first, second = together(2, inside, *words)
    assert (first[0], second[0]) == (0, 0), first[2] + second[2]
    assert not second[1]
    return first[1]


def test_knn(small_run: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    assert csml("knn", str(small_run), "--output", str(one)).returncode == 0
    (small_run / "baselines.json").unlink()  # so that both processes compute them together
    assert "20-NN" in both("knn", str(small_run), "--output", str(two))
    ours, theirs = (json.loads(path.read_text()) for path in (one, two))
    assert (theirs["tested"], theirs["trained_on"]) == (50, 150)
    assert theirs["accuracy"] == pytest.approx(ours["accuracy"])
    assert theirs["baselines"]["accuracy"].keys() == {"chance", "pixels", "untrained"}
    for name, shares in ours["baselines"]["accuracy"].items():
        assert theirs["baselines"]["accuracy"][name] == pytest.approx(shares, abs=0.021), name


@pytest.mark.parametrize("augment", ["true", "false"])
def test_linear(small_run: Path, tmp_path: Path, augment: str) -> None:
    words = ["linear", str(small_run), "--epochs", "4", "--augment", augment, "--stages", "[3, 4]", "--output"]
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    assert csml(*words, str(one)).returncode == 0
    assert both(*words, str(two)).count("top-1") == 2
    ours, theirs = (json.loads(path.read_text()) for path in (one, two))
    assert theirs["tested"] == 50
    for stage in ("3", "4"):
        assert theirs["stages"][stage]["top1"] == pytest.approx(ours["stages"][stage]["top1"], abs=0.021)


def test_embed(small_run: Path, tmp_path: Path) -> None:
    words = ["embed", str(small_run), "--batch_size", "64", "--output"]
    assert csml(*words, str(tmp_path / "one.npy")).returncode == 0
    both(*words, str(tmp_path / "two.npy"))
    ours, theirs = (np.load(tmp_path / f"{name}.npy") for name in ("one", "two"))
    np.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=1e-5)
    assert len(theirs) == 150


@pytest.fixture(scope="module")
def tuned(small_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier that two processes have fine-tuned."""
    out = tmp_path_factory.mktemp("tuned") / "run"
    words = ("--how", "paper", "--fraction", "0.2", "--epochs", "4", "--batch_size", "10", "--out", str(out))
    both("finetune", str(small_run), *words)
    return out


def test_finetune(tuned: Path) -> None:
    result = json.loads((tuned / "finetune.json").read_text())
    assert result["labels"] == 30
    assert sum(map(sum, result["confusion"])) == 50
    assert [record["epoch"] for record in read_metrics(tuned / "metrics.jsonl")] == [1, 2, 3, 4]


def test_mine(tuned: Path, tmp_path: Path) -> None:
    words = ["mine", str(tuned), "--epochs", "1", "--max_entropy", "2.5", "--out"]
    both(*words, str(tmp_path / "two"))
    assert csml(*words, str(tmp_path / "one")).returncode == 0
    ours, theirs = (json.loads((tmp_path / name / "round-1" / "mined.json").read_text()) for name in ("one", "two"))
    assert theirs == ours
    assert theirs["unlabeled"] == 120


def test_predict(tuned: Path, tmp_path: Path) -> None:
    noise_photos(tmp_path / "photos", 7)
    (tmp_path / "photos" / "03.png").write_bytes(b"broken")
    words = ["predict", str(tuned), str(tmp_path / "photos"), "--batch_size", "2", "--output"]
    both(*words, str(tmp_path / "two.csv"))
    assert csml(*words, str(tmp_path / "one.csv")).returncode == 0
    rows = [list(csv.DictReader((tmp_path / f"{name}.csv").open())) for name in ("one", "two")]
    assert [row["path"] for row in rows[0]] == [row["path"] for row in rows[1]]
    assert [row["label"] for row in rows[0]] == [row["label"] for row in rows[1]]
    assert len(rows[1]) == 7


@pytest.mark.parametrize("kind", ["fpn", "c4"])
def test_detect(small_run: Path, tmp_path: Path, kind: str) -> None:
    out = tmp_path / "run"
    both(
        "detect", str(small_run), "--preset", f"small-{kind}", "--schedule.iterations", "3",
        "--batch_size", "4", "--scenes.synthetic_train", "9", "--scenes.synthetic_val", "5",
        "--scenes.synthetic_size", "64", "--hardware.accumulate", "2", "--out", str(out),
    )  # fmt: skip
    assert json.loads((out / "detect.json").read_text())["images"] == 5
    seen = [result["image_id"] for result in json.loads((out / "detections.json").read_text())]
    assert seen == sorted(seen)


QUEUE = ("--contrast.queue_length", "64")


def test_a_batch_smaller_than_the_processes_need_is_refused_by_all(tmp_path: Path) -> None:
    words = ["pretrain", *SMALL_RUN, "--batch_size", "3", "--contrast.bn_splits", "1", "--out", str(tmp_path / "run")]
    for code, _, error in together(2, inside, *words):
        assert code == 2
        assert "batch_size: at least 4 for 2 processes, not 3" in error


def test_who_uses_a_run_decides_anew_about_processes(small_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(small_run, run)
    settings = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(
        settings.replace("devices: 1", "devices: 8").replace("accumulate: 1", "accumulate: 2")
    )
    noise_photos(tmp_path / "photos", 1)
    done = csml("neighbors", str(run), str(tmp_path / "photos" / "00.png"))
    assert done.returncode == 0, done.stderr


def test_what_one_process_can_do_is_not_done_by_several(small_run: Path, tmp_path: Path) -> None:
    noise_photos(tmp_path, 1)
    done = csml("neighbors", str(small_run), str(tmp_path / "00.png"), "--hardware.devices", "2")
    assert done.returncode == 2
    assert done.stderr.startswith("csml: error: hardware.devices: csml neighbors runs in one process")


BYOL = ["--preset", "demo-csml-byol"]
ONLINE = ["--neighbors.features", "online", "--checkpoint.every_minutes", "0.002"]


MEMORY = [
    "--contrast.memory", "true", "--views.neighbor_views", "false", "--views.mix", "none", "--model.stages", "[4]",
    "--neighbors.whiten", "0.5",
]  # fmt: skip


@pytest.mark.parametrize(
    ("more", "same"), [(BYOL, 0.5), (ONLINE, 0.9), (MEMORY, 0.9)], ids=["byol", "online", "memory"]
)
def test_pretrain(tmp_path: Path, more: list[str], same: float) -> None:
    """Neighbours and their purity are those of one process, as far as weights allow that differ in the last digits:
    after one epoch all images are still much alike to BYOL. The 20-NN is what one process finds with these weights."""
    few = [word for word in SMALL_RUN if word not in QUEUE or more is not BYOL]
    images = "192" if more is BYOL else "320"  # BYOL's BatchNorms talk in every layer of every view
    words = ["pretrain", *few, *more, "--images.synthetic_train", images, "--batch_size", "64", "--epochs", "2"]
    words += ["--model.backbone", "tiny", "--hardware.precision", "32-true"]  # with bf16, the last digits are the third
    both(*words, "--out", str(tmp_path / "two"))
    assert csml(*words, "--out", str(tmp_path / "one")).returncode == 0
    ours, theirs = (read_metrics(tmp_path / name / "metrics.jsonl") for name in ("one", "two"))
    assert theirs[0]["loss"] == pytest.approx(ours[0]["loss"], rel=1e-4)
    assert theirs[1]["omega/purity"] == pytest.approx(ours[1]["omega/purity"], abs=0.01)
    evaluated = tmp_path / "knn.json"
    assert (
        csml("knn", str(tmp_path / "two"), "--k", "[20]", "--baselines", "false", "--output", str(evaluated)).returncode
        == 0
    )
    assert theirs[1]["knn20"] == pytest.approx(json.loads(evaluated.read_text())["accuracy"]["20"], abs=0.021)
    found = [np.load(tmp_path / name / "neighbors" / "epoch-0001.npz")["indices"] for name in ("one", "two")]
    assert (found[0] == found[1]).mean() > same
    states = [load_newest(tmp_path / name / "checkpoints") for name in ("one", "two")]
    assert states[0] is not None and states[1] is not None
    assert torch.equal(states[1][1]["omega"], torch.from_numpy(found[1]))
