"""What a detector is used for: predict with masks, pictures, tiles, lists and videos; score; ONNX."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from pycocotools import mask as rle

import csml as library
from conftest import csml, noise_photos
from csml.api.detecting import start_of_pretraining
from csml.config import BackboneConfig, DetectConfig, DetectorConfig, ImagesConfig, ScenesConfig
from csml.data.video import frames
from csml.models.backbones import build_backbone
from csml.models.detectors import build_detector
from csml.pixels import resized
from csml.synthetic import CLASS_NAMES
from csml.weights import save_backbone, save_detector
from scene_drawing import drawn
from scene_layouts import LAYOUTS

CLASSES = CLASS_NAMES[:3]
CONFIG = DetectConfig(
    model=BackboneConfig("nano"),
    scenes=ScenesConfig(short_sides=(64,), test_side=64, max_side=128),
    detector=DetectorConfig("fpn", anchors=(8, 16, 24, 32, 48), channels=16, head_width=32, proposals=60, rois=8,
                            min_score=0.0, max_detections=6),
)  # fmt: skip


@pytest.fixture(scope="module")
def detector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Mask R-CNN that has learnt nothing, but finds something everywhere."""
    torch.manual_seed(0)
    net = build_detector(build_backbone("nano"), CONFIG.detector, len(CLASSES), masks=True)
    file = tmp_path_factory.mktemp("detector") / "detector.safetensors"
    save_detector(file, net.eval(), CONFIG, CLASSES, masks=True, min_score=0.0)
    return file


def predicted(detector: Path, *words: str, cwd: Path) -> list[dict]:
    done = csml("predict", str(detector), *words, "--output", "out.jsonl", "--hardware.threads", "1", cwd=cwd)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (cwd / "out.jsonl").read_text().splitlines()]
    (cwd / "out.jsonl").unlink()
    return rows


def test_masks_are_written_as_codes_or_polygons_of_the_same_regions(detector: Path, tmp_path: Path) -> None:
    noise_photos(tmp_path / "photos", 2)
    codes = predicted(detector, "photos", cwd=tmp_path)
    polygons = predicted(detector, "photos", "--masks", "polygons", cwd=tmp_path)
    assert len(codes) == len(polygons) > 2
    compared = 0
    for one, other in zip(codes, polygons, strict=True):
        assert one["mask"]["size"] == [40, 50] and one["score"] == other["score"]
        mask = rle.decode({**one["mask"], "counts": one["mask"]["counts"].encode()})
        if not other["mask"]:
            assert not mask.any()
            continue
        region = rle.decode(rle.merge(rle.frPyObjects(other["mask"], 40, 50)))
        compared += 1
        assert (region[mask > 0] > 0).mean() > 0.8
    assert compared
    assert "mask" not in predicted(detector, "photos", "--masks", "none", cwd=tmp_path)[0]


def test_pictures_are_drawn_and_csv_has_a_column_for_everything(detector: Path, tmp_path: Path) -> None:
    noise_photos(tmp_path / "photos" / "deep", 2)
    words = ["--output", "out.csv", "--pictures", "drawn", "--hardware.threads", "1"]
    done = csml("predict", str(detector), "photos", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "drawn/deep").iterdir()) == ["00.png", "01.png"]
    with (tmp_path / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {"path", "label", "score", "x0", "y1", "mask"} <= set(rows[0])
    assert json.loads(rows[0]["mask"])["size"] == [40, 50]


def test_pictures_that_cannot_be_written_are_no_problem_of_the_table(detector: Path, tmp_path: Path) -> None:
    noise_photos(tmp_path / "photos" / "deep", 1)
    words = ["predict", str(detector), "photos", "--output", "out.csv", "--hardware.threads", "1", "--pictures"]
    (tmp_path / "file").write_text("")
    done = csml(*words, "file", cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.endswith("csml: error: pictures: cannot write file (File exists)\n")
    assert not (tmp_path / "out.csv").exists()  # so that the corrected command works
    (tmp_path / "drawn").mkdir()
    (tmp_path / "drawn/deep").write_text("")
    done = csml(*words, "drawn", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.endswith("csml: error: pictures: cannot write drawn/deep/00.png (File exists)\n")


def test_a_list_of_files_is_a_source(detector: Path, tmp_path: Path) -> None:
    noise_photos(tmp_path / "photos", 3)
    (tmp_path / "list.txt").write_text("photos/00.png\nphotos/02.png\n")
    paths = {Path(row["path"]).name for row in predicted(detector, "list.txt", cwd=tmp_path)}
    assert paths == {"00.png", "02.png"}


def test_tiles_of_a_large_image_are_searched_and_merged(detector: Path, tmp_path: Path) -> None:
    big = np.concatenate([scene.pixels for scene in drawn()[:4]], axis=1)  # 64 × 256
    Image.fromarray(big).save(tmp_path / "big.png")
    rows = predicted(detector, "big.png", "--tiles", "64", cwd=tmp_path)
    assert max(row["x1"] for row in rows) > 128 and min(row["x0"] for row in rows) < 64
    assert all(row["mask"]["size"] == [64, 256] for row in rows)


def write_clip(path: Path, pictures: list[np.ndarray]) -> None:
    av = pytest.importorskip("av")
    with av.open(str(path), "w") as clip:
        stream = clip.add_stream("mpeg4", rate=10)
        stream.height, stream.width, _ = pictures[0].shape
        for picture in pictures:
            clip.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        clip.mux(stream.encode(None))


def test_the_frames_of_a_video_are_searched(detector: Path, tmp_path: Path) -> None:
    write_clip(tmp_path / "clip.mp4", [scene.pixels for scene in drawn()[:6]])
    rows = predicted(detector, "clip.mp4", "--every", "2", "--pictures", "drawn", cwd=tmp_path)
    assert sorted({row["frame"] for row in rows}) == [0, 2, 4]
    assert {row["frame"]: row["seconds"] for row in rows}[4] == pytest.approx(0.4)
    assert len(list((tmp_path / "drawn").iterdir())) == 3
    (tmp_path / "torn.mp4").write_bytes(b"no video")
    done = csml("predict", str(detector), "clip.mp4", "torn.mp4", "--output", "out.csv", cwd=tmp_path)
    assert done.returncode == 2 and "torn.mp4 cannot be read as a video" in done.stderr
    assert not (tmp_path / "out.csv").exists()


def test_tiles_of_a_frame_are_those_of_the_same_image(detector: Path, tmp_path: Path) -> None:
    write_clip(tmp_path / "clip.mp4", [np.concatenate([scene.pixels for scene in drawn()[:4]], axis=1)])  # 64 × 256
    (frame,) = frames(tmp_path / "clip.mp4", 1)
    frame.picture.save(tmp_path / "frame.png")
    of_image, of_frame = (
        [{key: row[key] for key in ("label", "score", "x0", "y0", "x1", "y1", "mask")} for row in rows]
        for rows in (predicted(detector, name, "--tiles", "64", cwd=tmp_path) for name in ("frame.png", "clip.mp4"))
    )
    assert of_frame and of_frame == of_image


@pytest.mark.parametrize("layout", ["cards", "penn-fudan"])
def test_a_detector_is_scored_on_other_data(detector: Path, layout: str, tmp_path: Path) -> None:
    LAYOUTS[layout].write(tmp_path / "data")
    done = csml("score", str(detector), "--data", "data", "--out", "scored", "--hardware.threads", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "AP50" in done.stdout and "Errors by kind" in done.stdout
    result = json.loads((tmp_path / "scored/detect.json").read_text())
    assert result["images"] == 10 and set(result["category_ids"]) == set(CLASSES)
    assert ("mask" in result) is LAYOUTS[layout].masks
    assert {path.name for path in (tmp_path / "scored").iterdir()} >= {"detections.json", "detections.png", "figures"}


def test_a_detector_of_other_classes_is_refused(tmp_path: Path, detector: Path) -> None:
    LAYOUTS["nuclei"].write(tmp_path / "data")
    done = csml("score", str(detector), "--data", "data", cwd=tmp_path)
    assert done.returncode == 2 and "none of them" in done.stderr


def test_onnxruntime_finds_what_torch_finds(detector: Path, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    exported = library.export(detector, "onnx", output=tmp_path / "detector.onnx")
    session = onnxruntime.InferenceSession(exported.path)
    known = session.get_modelmeta().custom_metadata_map
    assert tuple(json.loads(known["classes"])) == CLASSES
    net, facts = library.load_detector(detector)
    rng = np.random.default_rng(0)
    for height, width in ((64, 64), (90, 70), (64, 120)):  # pictures of other sizes than the traced one
        scene = np.asarray(Image.fromarray(drawn()[1].pixels).resize((width, height)))
        pixels = np.clip(scene + rng.normal(0, 8, scene.shape), 0, 255).astype(np.float32) / 255
        image = torch.from_numpy(pixels).permute(2, 0, 1).contiguous()
        assert resized((64, 64), facts["test_side"], facts["max_side"]) == (64, 64)
        with torch.no_grad():
            (expected,), _, _ = net.run_network([image])
        boxes, labels, scores, masks = session.run(None, {"image": image.numpy()})
        np.testing.assert_allclose(boxes, expected["boxes"], atol=1e-3)
        np.testing.assert_allclose(scores, expected["scores"], atol=1e-3)
        np.testing.assert_allclose(masks, expected["masks"][:, 0], atol=1e-3)
        assert np.array_equal(labels, expected["labels"] - 1)


def test_a_detector_and_a_backbone_are_not_mixed_up(detector: Path, tmp_path: Path) -> None:
    save_backbone(tmp_path / "backbone.safetensors", build_backbone("nano"), BackboneConfig("nano"), ImagesConfig())
    with pytest.raises(library.CsmlError, match=r"is a backbone, not a detector; .* csml detect"):
        library.load_detector(tmp_path)
    with pytest.raises(library.CsmlError, match="is a detector, not a backbone"):
        library.load_backbone(detector)
    with pytest.raises(library.CsmlError, match="is a detector, not a backbone"):
        library.load_backbone(detector.parent)
    done = csml("detect", "--test", str(detector), "--data", ".", cwd=tmp_path)
    assert done.returncode == 2 and "csml score RUN --data FOLDER" in done.stderr


def test_a_run_that_began_with_weights_names_them(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/config.yaml").write_text("model: {backbone: resnet18, weights: lite0}\n")
    assert start_of_pretraining(str(tmp_path / "run")) == "lite0"
    (tmp_path / "run/config.yaml").write_text("model: {backbone: resnet18, weights: null}\n")
    assert start_of_pretraining(str(tmp_path / "run")) is None
    assert start_of_pretraining("lite0") is None
