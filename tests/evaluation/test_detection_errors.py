"""Errors of a detector by kind, by hand; curves against pycocotools."""

import numpy as np
import pytest
from test_detection_scores import LEFT, RIGHT, found, scenes_with

from csml.evaluation.coco_ap import coco_scores
from csml.evaluation.detection_errors import detection_errors
from csml.evaluation.detection_report import detection_sections
from csml.sheets.detection_figures import draw_figures

ELSEWHERE, NEAR = (0, 60, 30, 90), (0, 25, 40, 65)  # NEAR over LEFT: IoU 15/65


def test_every_kind_of_error_is_counted_once() -> None:
    scenes = scenes_with([(0, LEFT, ""), (1, RIGHT, "")], [(0, LEFT, "")], [(0, RIGHT, "")])
    results = [
        found(11, 5, LEFT, 0.9),  # right
        found(11, 5, LEFT, 0.8),  # a duplicate
        found(11, 5, RIGHT, 0.8),  # a dog taken for a cat
        found(11, 9, ELSEWHERE, 0.8),  # nothing is there
        found(12, 5, NEAR, 0.9),  # the wrong place
        found(13, 5, RIGHT, 0.7),  # right
    ]
    errors = detection_errors(scenes, results, [11, 12, 13])
    assert errors["threshold"]["score"] == 0.7 and "best F1" in errors["threshold"]["why"]
    assert "no detection is right" in detection_errors(scenes, results[3:4], [11, 12, 13])["threshold"]["why"]
    assert errors["errors"]["total"] == {
        "right": 2, "class": 1, "place": 1, "duplicate": 1, "background": 1, "missed": 2
    }  # fmt: skip
    names, counts = errors["confusion"]["names"], np.array(errors["confusion"]["counts"])
    assert names == ["cat", "dog", "background"]
    assert counts.tolist() == [[2, 0, 1], [1, 0, 0], [2, 1, 0]]
    assert errors["best"][0]["f1"] == 1 and errors["worst"][0]["f1"] == 0


def test_the_threshold_has_the_best_f1_of_all() -> None:
    rng = np.random.default_rng(0)
    scenes = scenes_with(*[[(0, LEFT, ""), (1, RIGHT, "")] for _ in range(20)])
    results = [
        found(11 + image, category, box, float(rng.random() * (1 if good else 0.7)))
        for image in range(20)
        for category, box, good in ((5, LEFT, True), (9, RIGHT, True), (5, ELSEWHERE, False), (9, ELSEWHERE, False))
    ]
    errors = detection_errors(scenes, results, list(scenes.image_ids))
    right = {(row["image_id"], row["category_id"], row["score"]) for row in results if row["bbox"][2] == 40}

    def f1(score: float) -> float:
        kept = [row for row in results if row["score"] >= score]
        hits = sum((row["image_id"], row["category_id"], row["score"]) in right for row in kept)
        return 2 * hits / (len(kept) + 40)

    best = max(f1(row["score"]) for row in results)
    assert errors["threshold"]["f1"] == pytest.approx(best) == pytest.approx(f1(errors["threshold"]["score"]))


def test_the_area_below_a_curve_is_cocos_ap50(tmp_path) -> None:
    rng = np.random.default_rng(1)
    scenes = scenes_with(*[[(0, LEFT, ""), (1, RIGHT, "")] for _ in range(20)])
    results = [
        found(11 + image, category, tuple(np.array(box) + rng.normal(0, 6, 4)), float(rng.random()))
        for image in range(20)
        for category, box in ((5, LEFT), (9, RIGHT), (5, RIGHT))
    ]
    errors = detection_errors(scenes, results, list(scenes.image_ids))
    theirs = coco_scores(scenes, results, masks=False, image_ids=list(scenes.image_ids))
    for name, curve in errors["curves"].items():
        assert 100 * np.mean(curve["precision"]) == pytest.approx(theirs["box"]["per_class_AP50"][name], abs=0.01)
    assert {path.suffix for path in draw_figures(errors, tmp_path)} == {".png", ".svg"}
    sections = detection_sections({"images": 20, **theirs, **errors})
    assert [section.title for section in sections][:3] == ["Scores", "Classes", "Errors by kind"]
    assert all(len(row) == len(section.columns) for section in sections for row in section.rows)


def test_nothing_found_and_nothing_there() -> None:
    errors = detection_errors(scenes_with([(0, LEFT, "")]), [], [11])
    assert errors["errors"]["total"]["missed"] == 1 and errors["threshold"]["score"] == 0.5
    assert detection_errors(scenes_with([]), [], [11])["curves"] == {"cat": None, "dog": None}
