"""Scores of detections: hand-made cases, and pycocotools itself."""

import contextlib
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from csml.data.images import ArrayImages
from csml.data.scenes import Annotations, Objects, Scenes
from csml.data.scenes.annotations import encode_masks
from csml.errors import CsmlError
from csml.evaluation.coco_ap import coco_scores
from csml.evaluation.detections import SceneDetections, as_results, from_results
from csml.evaluation.voc_ap import voc_scores

SIDE = 100


def scenes_with(
    *objects: list[tuple[int, tuple[float, float, float, float], str]], truth: Path | None = None
) -> Scenes:
    """Of each image: class, box, and "crowd", "difficult" or nothing; a mask fills its box."""
    packed = []
    for each in objects:
        boxes = np.array([box for _, box, _ in each], dtype=np.float32).reshape(-1, 4)
        masks = np.zeros((len(each), SIDE, SIDE), np.uint8)
        for mask, (x0, y0, x1, y1) in zip(masks, boxes.astype(int).tolist(), strict=True):
            mask[y0:y1, x0:x1] = 1
        labels = np.array([label for label, _, _ in each], dtype=np.int64)
        crowd, difficult = (
            np.array([kind == what for _, _, kind in each], dtype=bool) for what in ("crowd", "difficult")
        )
        packed.append(Objects(boxes, labels, crowd, difficult, list(encode_masks(masks)) if len(each) else []))
    images = ArrayImages(np.zeros((len(objects), SIDE, SIDE, 3), np.uint8), np.zeros(len(objects), np.int64), (), "t")
    ids = tuple(range(11, 11 + len(objects)))
    return Scenes(images, Annotations.pack([(SIDE, SIDE)] * len(objects), packed), ("cat", "dog"), ids, (5, 9), truth)


def found(image: int | str, category: int, box: tuple[float, float, float, float], score: float) -> dict[str, Any]:
    x0, y0, x1, y1 = box
    return {"image_id": image, "category_id": category, "bbox": [x0, y0, x1 - x0, y1 - y0], "score": score}


LEFT, RIGHT, SHIFTED = (0, 0, 40, 40), (50, 50, 90, 90), (0, 10, 40, 50)  # SHIFTED over LEFT: IoU 30/50 = 0.6


def voc(scenes: Scenes, results: list[dict[str, Any]], points: str = "all") -> dict[str, Any]:
    return voc_scores(scenes, results, points, list(scenes.image_ids))["box"]


def test_voc_of_perfect_detections_is_100() -> None:
    scenes = scenes_with([(0, LEFT, ""), (1, RIGHT, "")], [])
    results = [found(11, 5, LEFT, 0.9), found(11, 9, RIGHT, 0.4)]
    for points in ("11", "all"):
        scores = voc(scenes, results, points)
        assert (scores["AP"], scores["AP50"], scores["AP75"]) == (100, 100, 100)
        assert scores["per_class"] == {"cat": 100, "dog": 100}


def test_voc_by_hand() -> None:
    # Two cats; right, wrong, right in the order of scores: precision 1 at recall 1/2, 2/3 at recall 1.
    scenes = scenes_with([(0, LEFT, ""), (0, RIGHT, "")])
    results = [found(11, 5, LEFT, 0.9), found(11, 5, (0, 60, 30, 90), 0.8), found(11, 5, RIGHT, 0.7)]
    assert voc(scenes, results, "all")["AP50"] == pytest.approx(100 * (0.5 * 1 + 0.5 * 2 / 3))
    assert voc(scenes, results, "11")["AP50"] == pytest.approx(100 * (6 * 1 + 5 * 2 / 3) / 11)


def test_voc_counts_an_object_once_and_by_overlap() -> None:
    scenes = scenes_with([(0, LEFT, "")])
    twice = voc(scenes, [found(11, 5, LEFT, 0.5), found(11, 5, LEFT, 0.9)])
    assert twice["AP50"] == 100  # the second is wrong, but comes after everything was found
    shifted = voc(scenes, [found(11, 5, SHIFTED, 0.9)])
    assert (shifted["AP50"], shifted["AP75"]) == (100, 0)
    assert shifted["AP"] == pytest.approx(20)  # 0.5 and 0.55; at 0.6 the overlap would have to be larger
    assert voc(scenes, [found(11, 9, LEFT, 0.9)])["AP50"] == 0


def test_voc_spares_difficult_objects() -> None:
    scenes = scenes_with([(0, LEFT, ""), (0, RIGHT, "difficult")])
    missed = voc(scenes, [found(11, 5, LEFT, 0.5)])
    assert missed["AP50"] == 100
    hit = voc(scenes, [found(11, 5, RIGHT, 0.9), found(11, 5, RIGHT, 0.8), found(11, 5, LEFT, 0.5)])
    assert hit["AP50"] == 100


def test_voc_of_a_class_that_is_not_there_is_unknown() -> None:
    scores = voc(scenes_with([(0, LEFT, "")]), [found(11, 5, LEFT, 0.5), found(11, 9, LEFT, 0.5)])
    assert scores["per_class"] == {"cat": 100, "dog": None}
    assert scores["AP50"] == 100


def test_voc_without_detections_is_0() -> None:
    assert voc(scenes_with([(0, LEFT, "")]), [])["AP50"] == 0


def test_voc_with_nothing_to_find_is_unknown() -> None:
    assert voc(scenes_with([(0, LEFT, "difficult")]), [found(11, 5, LEFT, 0.9)])["AP50"] is None


def test_voc_compares_recalls_as_its_own_evaluation_does() -> None:
    # 3 of 10: recall 0.3 is below the fourth mark, 0.30000000000000004.
    corners = [(10 * i, 0, 10 * i + 9, 9) for i in range(10)]
    results = [found(11, 5, corner, 0.9) for corner in corners[:3]]
    assert voc(scenes_with([(0, corner, "") for corner in corners]), results, "11")["AP50"] == pytest.approx(300 / 11)


def test_voc_is_near_cocos_where_nothing_is_difficult() -> None:
    rng = np.random.default_rng(0)
    objects, results = [], []
    for image in range(30):
        corners = rng.uniform(0, 50, (4, 2))
        boxes = np.concatenate([corners, corners + rng.uniform(15, 50, (4, 2))], axis=1)
        labels = rng.integers(0, 2, 4)
        objects.append([(int(label), tuple(box), "") for label, box in zip(labels, boxes, strict=True)])
        for label, box in zip(labels, boxes + rng.normal(0, 3, (4, 4)), strict=True):
            results.append(found(11 + image, (5, 9)[label], tuple(box), float(rng.random())))
            results.append(found(11 + image, 5, tuple(box + 25), float(rng.random())))
    scenes = scenes_with(*objects)
    coco = coco_scores(scenes, results, masks=False, image_ids=list(scenes.image_ids))["box"]
    ours = voc(scenes, results)
    assert 20 < coco["AP50"] < 95
    for name in ("AP", "AP50", "AP75"):  # 101 recalls instead of all, and best match instead of nearest
        assert ours[name] == pytest.approx(coco[name], abs=3)


def test_coco_by_hand() -> None:
    scenes = scenes_with([(0, LEFT, ""), (1, RIGHT, "crowd")], [(0, RIGHT, "")])
    results = [found(11, 5, LEFT, 0.9), found(12, 5, (50, 60, 90, 100), 0.8), found(11, 9, (60, 60, 70, 70), 0.9)]
    scores = coco_scores(scenes, results, masks=False, image_ids=[11, 12])["box"]
    assert scores["per_class"]["dog"] is None  # a crowd is not to be found
    assert scores["AP50"] == pytest.approx(100, abs=0.01)
    assert scores["AP75"] == pytest.approx(100 * 51 / 101, abs=0.01)  # one of two: recall up to 0.5
    assert scores["AP_S"] is None and scores["AP_L"] is None and scores["AP_M"] is not None


def test_scores_are_those_of_pycocotools_by_hand_on_the_written_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    annotations, results = [], []
    for number in range(60):
        x, y, w, h = *rng.uniform(0, 50, 2), *rng.uniform(10, 50, 2)
        image, category = 11 + number % 7, (5, 9)[number % 2]
        polygon = [x, y, x + w, y, x + w, y + h, x, y + h]
        annotations.append(
            {
                "id": number + 1, "image_id": image, "category_id": category, "bbox": [x, y, w, h],
                "area": w * h / 2, "iscrowd": int(number % 20 == 0), "segmentation": [polygon],
            }
        )  # fmt: skip
        box = np.array([x, y, x + w, y + h]) + rng.normal(0, 4, 4)
        mask = np.zeros((1, SIDE, SIDE), np.uint8)
        mask[0, int(max(0, box[1])) : int(box[3]), int(max(0, box[0])) : int(box[2])] = 1
        code = encode_masks(mask)[0]
        segmentation = {"size": code["size"], "counts": code["counts"].decode()}
        results.append({**found(image, category, tuple(box), float(rng.random())), "segmentation": segmentation})
    images = [{"id": id, "file_name": f"{id}.jpg", "height": SIDE, "width": SIDE} for id in range(11, 18)]
    content = {
        "info": {},
        "images": images,
        "annotations": annotations,
        "categories": [{"id": 5, "name": "cat"}, {"id": 9, "name": "dog"}],
    }
    (tmp_path / "truth.json").write_text(json.dumps(content))
    (tmp_path / "detections.json").write_text(json.dumps(results))
    scenes = scenes_with(*[[] for _ in images], truth=tmp_path / "truth.json")
    ours = coco_scores(scenes, results, masks=True, image_ids=list(scenes.image_ids))
    for name, kind in (("box", "bbox"), ("mask", "segm")):
        with contextlib.redirect_stdout(io.StringIO()):
            truth = COCO(str(tmp_path / "truth.json"))
            written = json.loads((tmp_path / "detections.json").read_text())
            for result in written if kind == "segm" else []:  # else pycocotools takes sizes from the box
                del result["bbox"]
            judge = COCOeval(truth, truth.loadRes(written), kind)
            judge.evaluate(), judge.accumulate(), judge.summarize()
        for key, value in zip(("AP", "AP50", "AP75", "AP_S", "AP_M", "AP_L"), judge.stats, strict=False):
            assert ours[name][key] == (None if value < 0 else pytest.approx(100 * value)), (name, key)
    assert 0 < ours["box"]["AP"] < 100


def test_coco_without_detections_is_0_where_there_is_something_to_find() -> None:
    scores = coco_scores(scenes_with([(0, LEFT, "")]), [], masks=True, image_ids=[11])
    assert scores["box"]["AP"] == scores["mask"]["AP"] == 0
    assert scores["box"]["AP_L"] is None and scores["box"]["per_class"] == {"cat": 0, "dog": None}


def test_a_file_without_what_pycocotools_takes_for_granted_is_scored_all_the_same(tmp_path: Path) -> None:
    square = [[0, 0, 40, 0, 40, 40, 0, 40]]
    annotations = [
        {"image_id": 11, "category_id": 5, "segmentation": square},  # no id, iscrowd, bbox, area
        {"id": 7, "image_id": 11, "category_id": 9, "bbox": [50, 50, 40, 40], "segmentation": []},
        {"id": 7, "image_id": 99, "category_id": 9, "bbox": [50, 50, 40, 40]},
    ]
    categories = [{"id": 5, "name": "cat"}, {"id": 9, "name": "dog"}]
    content = {"images": [{"id": 11, "file_name": "a.jpg"}], "annotations": annotations, "categories": categories}
    (tmp_path / "truth.json").write_text(json.dumps(content))
    scenes = scenes_with([], truth=tmp_path / "truth.json")
    mask = np.zeros((1, SIDE, SIDE), np.uint8)
    mask[0, :40, :40] = 1
    code = encode_masks(mask)[0]
    segmentation = {"size": code["size"], "counts": code["counts"].decode()}
    results = [{**found(11, 5, LEFT, 0.9), "segmentation": segmentation}]
    results += [{**found(11, 9, RIGHT, 0.9), "segmentation": segmentation}]
    scores = coco_scores(scenes, results, masks=True, image_ids=[11])
    assert scores["box"]["per_class"] == {"cat": pytest.approx(100), "dog": pytest.approx(100)}
    assert scores["mask"]["per_class"] == {"cat": pytest.approx(100), "dog": None}


ODD = ["x", [], {}, None, float("nan"), float("inf"), 10**400, ["a", "b", "c", "d"], [1e308] * 4, True, -1]


@pytest.mark.parametrize("key", ["bbox", "area", "iscrowd", "category_id", "image_id", "segmentation", "id"])
def test_odd_values_in_the_file_do_not_break_its_scores(tmp_path: Path, key: str) -> None:
    """They are found hours after the file was read first, when a detector is tested."""
    good = {"id": 1, "image_id": 11, "category_id": 5, "bbox": [0, 0, 40, 40], "area": 1600, "iscrowd": 0}
    file = tmp_path / "truth.json"
    images = [{"id": 11, "file_name": "a.jpg"}, {"id": 12, "file_name": "b.jpg"}]
    for odd in ODD:
        rows = [good, {**good, "image_id": 12, key: odd}]
        categories = [{"id": 5, "name": "cat"}, {"id": 9, "name": "dog"}]
        file.write_text(json.dumps({"images": images, "annotations": rows, "categories": categories}))
        scores = coco_scores(scenes_with([], [], truth=file), [found(11, 5, LEFT, 0.9)], False, [11, 12])["box"]
        assert 40 < scores["per_class"]["cat"] <= 100.001, odd  # the good object is found, the other one perhaps not
        assert scores["per_class"]["dog"] is None


def test_ids_of_every_kind_and_order_are_scored(tmp_path: Path) -> None:
    """numpy would sort classes, and turn numbers beside texts into texts."""
    scenes = scenes_with([(0, LEFT, "")], [(1, RIGHT, "")])
    plain = coco_scores(scenes, [found(11, 5, LEFT, 0.9)], False, [11, 12])
    odd = replace(scenes, image_ids=("a", 10**400), category_ids=(9, 5))
    assert coco_scores(odd, [found("a", 9, LEFT, 0.9)], False, ["a", 10**400]) == plain
    assert plain["box"]["per_class"] == {"cat": pytest.approx(100), "dog": 0}


def test_detections_stay_as_they_are_when_they_are_scored() -> None:
    """pycocotools would add the corners of a box as if they were a mask."""
    results = [found(11, 5, LEFT, 0.9)]
    coco_scores(scenes_with([(0, LEFT, "")]), results, masks=False, image_ids=[11])
    assert results == [found(11, 5, LEFT, 0.9)]


def test_a_file_that_became_too_large_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "truth.json"
    file.write_text(json.dumps({"images": [], "annotations": [], "categories": []}))
    monkeypatch.setattr("csml.data.scenes.coco.LARGEST", 10)
    with pytest.raises(CsmlError, match=r"truth\.json cannot be read"):
        coco_scores(scenes_with([(0, LEFT, "")], truth=file), [], masks=False, image_ids=[11])


def test_detections_are_written_in_cocos_form_and_read_back() -> None:
    scenes = scenes_with([(0, LEFT, "")])
    mask = np.zeros((1, SIDE, SIDE), np.uint8)
    mask[0, 5:30, 10:20] = 1
    box, score = np.array([[10.0, 5, 20, 30]], dtype=np.float32), np.array([0.75], dtype=np.float32)
    (result,) = json.loads(
        json.dumps(as_results(scenes, 0, SceneDetections(box, np.array([1]), score, encode_masks(mask))))
    )
    assert {k: result[k] for k in ("image_id", "category_id", "bbox", "score")} == {
        "image_id": 11, "category_id": 9, "bbox": [10, 5, 10, 25], "score": 0.75,
    }  # fmt: skip
    assert result["segmentation"]["size"] == [SIDE, SIDE]
    code = {**result["segmentation"], "counts": result["segmentation"]["counts"].encode()}
    assert encode_masks(mask)[0] == code
    (plain,) = as_results(scenes, 0, SceneDetections(box, np.array([1]), score, None))
    assert "segmentation" not in plain
    again = from_results(scenes, 0, [result, found(12, 5, LEFT, 0.9)])
    assert again.boxes.tolist() == box.tolist() and again.scores.tolist() == [0.75] and again.labels.tolist() == [1]
    assert again.masks == encode_masks(mask) and from_results(scenes, 0, [plain]).masks is None
