"""`csml detect` from end to end: drawn scenes, VOC, COCO; kills; real photos where they are at hand."""

import contextlib
import io
import json
import os
import signal
from pathlib import Path

import pytest
import torch
import torchvision
from PIL import Image
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

import csml as library
from conftest import assert_same, csml, noise_photos, untimed
from csml.api.detecting import detect_config
from csml.config import DETECT_PRESETS, DetectConfig
from csml.runs.checkpoint import load_checkpoint, newest_checkpoint
from csml.runs.metrics import read_metrics
from csml.weights import load_backbone
from scene_files import voc_folder, voc_object, voc_xml
from started import Started

REAL = Path(os.environ.get("CSML_TEST_DATA", "no data"))
"""A folder that holds the data sets voc_bccd and coco_small; without it, tests on real photos are skipped."""
QUICK = [
    "--batch_size", "2", "--scenes.short_sides", "[64, 96]", "--scenes.test_side", "64", "--scenes.max_side", "160",
    "--detector.proposals", "20", "--detector.rois", "8", "--schedule.iterations", "7", "--schedule.report_every", "3",
    "--monitor.tensorboard", "false", "--hardware.threads", "1", "--checkpoint.every_steps", "1",
    "--checkpoint.keep", "20",
]  # fmt: skip
SCENES = [*QUICK, "--scenes.synthetic_train", "12", "--scenes.synthetic_val", "6", "--scenes.synthetic_size", "64"]


def assert_equal_runs(one: Path, two: Path) -> None:
    states = [newest_checkpoint(out / "checkpoints") for out in (one, two)]
    assert states[0] is not None and states[1] is not None
    assert_same(load_checkpoint(states[0]), load_checkpoint(states[1]))
    assert untimed(one / "metrics.jsonl") == untimed(two / "metrics.jsonl")
    for name in ("detector.safetensors", "detections.json"):
        assert (one / name).read_bytes() == (two / name).read_bytes()


@pytest.fixture(scope="module")
def masked(small_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished Mask R-CNN around the small backbone."""
    out = tmp_path_factory.mktemp("detect") / "run"
    done = csml("detect", str(small_run), "--preset", "small-fpn", *SCENES, "--out", str(out))
    assert done.returncode == 0, done.stderr
    return out


def test_the_defaults_are_the_paper_s() -> None:
    config = DetectConfig()
    assert (config.model.backbone, config.detector.kind, config.batch_size) == ("resnet50", "c4", 16)
    assert (config.scenes.short_sides[0], config.scenes.short_sides[-1], config.scenes.test_side) == (480, 800, 800)
    schedule = config.schedule
    assert (schedule.iterations, schedule.lr_per_16) == (24_000, 0.02)
    assert [round(share * 24_000) for share in schedule.milestones] == [18_000, 22_000]
    twice = detect_config("random", preset="coco-fpn-2x")
    assert (twice.detector.kind, twice.schedule.iterations) == ("fpn", 180_000)


@pytest.mark.parametrize("name", DETECT_PRESETS)
def test_presets_are_valid(name: str) -> None:
    assert detect_config("random", preset=name).schedule.iterations > 0


def test_a_run_leaves_scores_detections_a_sheet_and_a_detector(masked: Path) -> None:
    result = json.loads((masked / "detect.json").read_text())
    assert result["images"] == 6 and result["format"] == "synthetic"
    assert set(result["box"]) == set(result["mask"]) == {"AP", "AP50", "AP75", "AP_S", "AP_M", "AP_L", "per_class",
                                                          "per_class_AP50"}  # fmt: skip
    assert Image.open(masked / "detections.png").width > 500
    assert [record["iteration"] for record in read_metrics(masked / "metrics.jsonl")] == [3, 6, 7]
    detector, facts = library.load_detector(masked)
    assert len(facts["classes"]) == 10 and facts["masks"]
    with torch.no_grad():
        (found,) = detector([torch.rand(3, 64, 64)])
    assert found["boxes"].shape[1] == 4


def test_the_backbone_comes_from_the_run(small_run: Path, tmp_path: Path) -> None:
    still = ["--schedule.iterations", "1", "--schedule.lr_per_16", "1e-12", "--schedule.report_every", "1"]
    done = csml("detect", str(small_run), "--preset", "small-c4", *SCENES, *still, "--out", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    detector, _ = library.load_detector(tmp_path / "run")
    weights = load_backbone(small_run).state_dict()
    found = {**detector.backbone.state_dict(), **detector.roi_heads.box_head.state_dict()}
    for key, value in weights.items():
        if "running" not in key and "tracked" not in key:
            torch.testing.assert_close(found[key], value)


def begun(backbone: Path, out: Path, until: str) -> Started:
    """The run of `masked` in a process of its own, as far as a checkpoint."""
    words = ["detect", str(backbone), "--preset", "small-fpn", *SCENES, "--out", str(out)]
    process = Started(*words)
    process.wait_for(out / "checkpoints" / until)
    return process


def test_sigkill_changes_nothing(masked: Path, small_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = begun(small_run, out, until="epoch-0001-step-000001.pt")
    process.kill()
    for late in out.glob("checkpoints/epoch-000[2-9]*"):  # the kill came too late: go back to the middle all the same
        late.unlink()
    resumed = csml("detect", "--resume", str(out))
    assert resumed.returncode == 0, resumed.stderr
    assert_equal_runs(out, masked)


def test_sigterm_saves_and_names_the_command_that_continues(masked: Path, small_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = begun(small_run, out, until="epoch-0000-step-000001.pt")
    process.send_signal(signal.SIGTERM)
    error = process.wait()
    assert process.returncode == 128 + signal.SIGTERM, error
    assert f"csml detect --resume {out}" in error
    resumed = csml("detect", "--resume", str(out))
    assert resumed.returncode == 0, resumed.stderr
    assert_equal_runs(out, masked)


def test_weights_of_another_trainer_and_files_with_workers(tmp_path: Path) -> None:
    """torchvision's layout; VOC files read by a worker; a list of one name; what was odd is written down."""
    torch.manual_seed(0)
    torch.save(torchvision.models.resnet18().state_dict(), tmp_path / "theirs.pth")
    dog = voc_object("dog", 5, 5, 70, 30)
    lists = {"train": {f"{i}": voc_xml(f"{i}", dog) for i in range(6)}, "val": {"v": voc_xml("v", dog)}}
    voc = voc_folder(tmp_path / "voc", lists)
    words = ["--preset", "small-c4", *QUICK, "--data", str(voc), "--train", "train", "--test", "val"]
    words += ["--scenes.workers", "1", "--scenes.short_sides", "[64]", "--checkpoint.keep", "4"]
    words += ["--schedule.iterations", "4", "--schedule.report_every", "2"]
    start = ["detect", str(tmp_path / "theirs.pth"), *words]
    assert csml(*start, "--out", str(tmp_path / "whole")).returncode == 0
    process = Started(*start, "--out", str(tmp_path / "killed"))
    process.wait_for(tmp_path / "killed/checkpoints/epoch-0001-step-000001.pt")
    process.kill()
    for late in tmp_path.glob("killed/checkpoints/epoch-000[2-9]*"):
        late.unlink()
    resumed = csml("detect", "--resume", str(tmp_path / "killed"), "--scenes.workers", "0")
    assert resumed.returncode == 0, resumed.stderr
    assert_equal_runs(tmp_path / "killed", tmp_path / "whole")
    assert "box past the border, clipped" in (tmp_path / "whole/repairs.csv").read_text()
    assert set(json.loads((tmp_path / "whole/detect.json").read_text())["box"]) == {
        "AP", "AP50", "AP75", "per_class", "per_class_AP50"
    }  # fmt: skip


def test_mixed_precision(small_run: Path, tmp_path: Path) -> None:
    words = ["--preset", "small-fpn", *SCENES, "--schedule.iterations", "2", "--hardware.precision", "bf16-mixed"]
    done = csml("detect", str(small_run), *words, "--out", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr


def test_a_detector_predicts_boxes_on_a_folder(masked: Path, tmp_path: Path) -> None:
    noise_photos(tmp_path / "photos", 3)
    (tmp_path / "photos/torn.jpg").write_bytes(b"no picture")
    out = tmp_path / "found.jsonl"
    done = csml("predict", str(masked), str(tmp_path / "photos"), "--output", str(out), "--min_score", "0")
    assert done.returncode == 0, done.stderr
    assert "4 images, 1 of them cannot be read" in done.stderr
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["path"] for row in rows if "error" in row] == [f"{tmp_path}/photos/torn.jpg"]
    found = [row for row in rows if "x0" in row]
    assert found and {row["path"] for row in rows} == {str(path) for path in (tmp_path / "photos").iterdir()}
    for row in found:
        assert set(row) == {"path", "label", "score", "x0", "y0", "x1", "y1", "mask"}
        assert 0 <= row["x0"] < row["x1"] <= 50 and 0 <= row["y0"] < row["y1"] <= 40


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "weights: give what to start from"),
        (["random", "--data", "/nowhere"], "data: there is no folder /nowhere"),
        (["random", "--format", "voc"], "synthetic scenes have no format"),
        (["random", "--format", "csv", "--data", "."], "format: expected one of auto, voc, coco, yolo"),
        (["random", "--preset", "demo"], "preset: 'demo' is unknown; choose one of small-c4"),
        (["random", "--detector.masks", "true"], "detector.masks: needs --detector.kind fpn"),
        (["random", "--detector.kind", "fpn", "--detector.anchors", "[9]"], "detector.anchors: one for each of the"),
        (["random", "--scenes.max_side", "100"], "scenes.max_side: at least the longest short side"),
        (["random", "--schedule.iterations", "0"], "schedule.iterations: above 0"),
        (["random", "--model.backbone", "vgg"], "model.backbone: one of small, tiny"),
        (["random", "--schedule.milestones", "[300]"], "schedule.milestones: numbers, each above 0 and below 1"),
        (["/nowhere"], "there are no weights at /nowhere"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line(words: list[str], problem: str, tmp_path: Path) -> None:
    done = csml("detect", *words, "--out", str(tmp_path / "run"))
    assert done.returncode == 2
    assert problem in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.skipif(not (REAL / "voc_bccd").is_dir(), reason="CSML_TEST_DATA does not lead to it")
def test_real_photos_with_voc_annotations(tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ["--format", "voc", "--data", str(REAL / "voc_bccd"), "--train", "val", "--test", "test"]
    done = csml("detect", "random", "--preset", "small-c4", *QUICK, *words, "--out", str(out))
    assert done.returncode == 0, done.stderr
    result = json.loads((out / "detect.json").read_text())
    assert result["images"] == 72
    assert set(result["box"]["per_class"]) == {"Platelets", "RBC", "WBC"}
    assert Image.open(out / "detections.png").width > 500


@pytest.mark.skipif(not (REAL / "coco_small").is_dir(), reason="CSML_TEST_DATA does not lead to it")
def test_real_photos_with_coco_annotations(tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ["--format", "coco", "--data", str(REAL / "coco_small"), "--detector.max_detections", "5"]
    words += ["--detector.min_score", "0"]
    done = csml("detect", "random", "--preset", "small-fpn", *QUICK, *words, "--out", str(out))
    assert done.returncode == 0, done.stderr
    result = json.loads((out / "detect.json").read_text())
    assert result["images"] == 188
    for name, kind in (("box", "bbox"), ("mask", "segm")):
        with contextlib.redirect_stdout(io.StringIO()):
            truth = COCO(str(REAL / "coco_small/annotations/instances_val2017.json"))
            judge = COCOeval(truth, truth.loadRes(str(out / "detections.json")), kind)
            judge.evaluate(), judge.accumulate(), judge.summarize()
        assert result[name]["AP"] == pytest.approx(100 * judge.stats[0])
        assert result[name]["AP50"] == pytest.approx(100 * judge.stats[1])
