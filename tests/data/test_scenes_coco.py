"""COCO's files against pycocotools, whole and damaged."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pycocotools import mask as rle
from pycocotools.coco import COCO

from csml.config import ScenesConfig
from csml.data.scenes.annotations import Annotations, Objects, decode_masks, encode_masks
from csml.data.scenes.open import open_scenes
from csml.data.scenes.repair import run_lengths
from csml.errors import CsmlError
from scene_files import photo

HEIGHT, WIDTH = 40, 60


def disc() -> np.ndarray:
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    return ((x - 30) ** 2 + (y - 20) ** 2 < 100).astype(np.uint8)


def uncompressed(mask: np.ndarray) -> dict[str, Any]:
    """Run lengths, column by column, first of zeros."""
    flat = mask.flatten(order="F")
    counts, value, run = [], 0, 0
    for pixel in flat.tolist():
        if pixel != value:
            counts.append(run)
            value, run = pixel, 0
        run += 1
    return {"size": list(mask.shape), "counts": [*counts, run]}


def compressed(mask: np.ndarray) -> dict[str, Any]:
    code = rle.encode(np.asfortranarray(mask))
    return {"size": list(mask.shape), "counts": code["counts"].decode()}


POLYGON = [[10.0, 10.0, 30.0, 10.0, 30.0, 30.0], [40.0, 5.0, 50.0, 5.0, 50.0, 15.0, 40.0, 15.0]]


def annotation(id: int, image: int = 7, category: int = 18, bbox=(10, 10, 20, 20), **more: Any) -> dict[str, Any]:
    return {"id": id, "image_id": image, "category_id": category, "bbox": list(bbox), "area": 100, "iscrowd": 0, **more}


def content(annotations: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "images": [{"id": id, "file_name": f"{id}.jpg", "height": HEIGHT, "width": WIDTH} for id in (7, 3)],
        "categories": [{"id": 44, "name": "bottle"}, {"id": 18, "name": "dog"}],
        "annotations": annotations,
    }


def coco_folder(root: Path, annotations: list[dict[str, Any]], **changed: Any) -> Path:
    for part in ("train2017", "val2017"):
        for id in (7, 3):
            photo(root / part / f"{id}.jpg", WIDTH, HEIGHT)
        (root / "annotations").mkdir(exist_ok=True)
        (root / "annotations" / f"instances_{part}.json").write_text(json.dumps(content(annotations) | changed))
    return root


@pytest.mark.parametrize(
    "segmentation", [POLYGON, uncompressed(disc()), compressed(disc())], ids=["polygons", "rle", "compressed"]
)
def test_masks_are_those_of_pycocotools(tmp_path: Path, segmentation: Any) -> None:
    root = coco_folder(tmp_path, [annotation(1, segmentation=segmentation)])
    data = open_scenes(str(root), ScenesConfig())
    (mask,) = decode_masks([m for m in data.train.annotations.objects(0).masks if m], (HEIGHT, WIDTH))
    truth = COCO(str(root / "annotations/instances_train2017.json"))
    assert np.array_equal(mask, truth.annToMask(truth.loadAnns([1])[0]))


def test_ids_of_the_file_are_kept_and_labels_follow_sorted_categories(tmp_path: Path) -> None:
    root = coco_folder(tmp_path, [annotation(1, category=44), annotation(2, image=3)])
    train = open_scenes(str(root), ScenesConfig()).train
    assert train.classes == ("dog", "bottle")
    assert train.category_ids == (18, 44)
    assert train.image_ids == (7, 3)
    assert train.annotations.objects(0).labels.tolist() == [1]
    assert train.annotations.objects(0).boxes.tolist() == [[10, 10, 30, 30]]


def test_crowds_are_not_learnt_and_images_without_objects_are_tested(tmp_path: Path) -> None:
    crowd = annotation(1, image=3, iscrowd=1, segmentation=uncompressed(disc()))
    data = open_scenes(str(coco_folder(tmp_path, [crowd, annotation(2)])), ScenesConfig())
    assert data.train.image_ids == (7,)
    assert data.test.image_ids == (7, 3)
    assert data.test.annotations.objects(1).crowd.tolist() == [True]


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        (annotation(2, image=99), "annotation of an unlisted image, skipped"),
        (annotation(2, category=5), "annotation of the unlisted category 5, skipped"),
        (annotation(2, bbox=(5, 5, 0, 10)), "box without area, skipped"),
        (annotation(2, bbox=(5, 5, -3, 10)), "box without area, skipped"),
        (annotation(2, bbox=(5, 5)), "object without a box, skipped"),
        (annotation(2, bbox=(50, 30, 40, 40)), "box past the border, clipped"),
        (annotation(2, segmentation=[[1, 2, 3, 4]]), "mask cannot be used, left out"),
        (annotation(2, segmentation={"size": [4, 4], "counts": [16]}), "mask cannot be used, left out"),
        (annotation(2, segmentation={"size": [HEIGHT, WIDTH], "counts": "~~~ ?"}), "mask cannot be used, left out"),
        (annotation(2, segmentation={"size": [HEIGHT, WIDTH], "counts": [5, 10**6]}), "mask cannot be used, left out"),
        (annotation(2, segmentation={"counts": [5]}), "mask cannot be used, left out"),
        (annotation(2, segmentation=[[float("nan"), 1, 5, 5, 9, 1]]), "mask cannot be used, left out"),
        (annotation(2, segmentation=[[1, 1, 1e9, 5, 9, 1]]), "mask cannot be used, left out"),
    ],
)  # fmt: skip
def test_odd_annotations_are_repaired_or_skipped_and_told(tmp_path: Path, row: dict[str, Any], kind: str) -> None:
    data = open_scenes(str(coco_folder(tmp_path, [annotation(1, image=3), row])), ScenesConfig())
    assert {found for found, _, _ in data.repairs.rows} == {kind}
    assert 3 in data.train.image_ids


@pytest.mark.parametrize("odd", [[1, 2, 3], [["a"] * 6], [[None] * 6], [[[1, 2]] * 6], [[10**400] * 6], [None], [{}]])
def test_an_odd_mask_of_an_image_that_was_resized_is_left_out_and_told(tmp_path: Path, odd: Any) -> None:
    stated = [{"id": id, "file_name": f"{id}.jpg", "height": 2 * HEIGHT, "width": 2 * WIDTH} for id in (7, 3)]
    rows = [annotation(1, segmentation=odd), annotation(2, image=3, segmentation=POLYGON)]
    data = open_scenes(str(coco_folder(tmp_path, rows, images=stated)), ScenesConfig())
    resized = "image was resized, its objects are scaled"
    assert {found for found, _, _ in data.repairs.rows} == {resized, "mask cannot be used, left out"}
    halved = [[value / 2 for value in polygon] for polygon in POLYGON]
    expected = rle.decode(rle.merge(rle.frPyObjects(halved, HEIGHT, WIDTH)))
    assert np.array_equal(rle.decode(data.train.annotations.objects(1).masks[0]), expected)


def test_a_missing_image_is_named(tmp_path: Path) -> None:
    root = coco_folder(tmp_path, [annotation(1), annotation(2, image=3)])
    (root / "train2017/7.jpg").unlink()
    data = open_scenes(str(root), ScenesConfig())
    assert data.train.image_ids == (3,)
    assert data.repairs.rows == [("image missing, skipped", "7.jpg", "")]


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"images": None}, "it has no list of images"),
        ({"categories": [{"id": 1}]}, "has no id or no name"),
        ({"categories": []}, "has no categories"),
        ({"images": [{"id": 7, "file_name": "../../secret.jpg"}]}, "names a file outside of its folder"),
        ({"images": [{"id": 7, "file_name": "/etc/passwd"}]}, "names a file outside of its folder"),
        ({"images": [{"id": 7, "file_name": "7.jpg"}] * 2}, "two images with the id 7"),
        ({"images": [{"id": 7}]}, "has no id or no file_name"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_coco_is_one_line(tmp_path: Path, changed: dict[str, Any], problem: str) -> None:
    root = coco_folder(tmp_path, [annotation(1)], **changed)
    with pytest.raises(CsmlError, match=problem):
        open_scenes(str(root), ScenesConfig())


def test_several_files_are_not_guessed_between_and_their_images_are_found(tmp_path: Path) -> None:
    root = coco_folder(tmp_path, [annotation(1)])
    few = root / "annotations/instances_train10pct.json"
    few.write_text(json.dumps(content([annotation(1)])))
    with pytest.raises(CsmlError, match=r"train: .* has several: annotations/instances_train10pct.json, annota"):
        open_scenes(str(root), ScenesConfig())
    assert len(open_scenes(str(root), ScenesConfig(), "coco", ["annotations/instances_train10pct.json"]).train) == 1


def test_masks_of_a_few_objects_are_not_masks(tmp_path: Path) -> None:
    rows = [annotation(1, segmentation=POLYGON), annotation(2), annotation(3, image=3, segmentation=[])]
    truth = open_scenes(str(coco_folder(tmp_path, rows)), ScenesConfig()).train.annotations
    assert not truth.have_masks()
    assert truth.without_mask().tolist() == [0, 1]


def test_files_of_other_exporters_are_found(tmp_path: Path) -> None:
    for part in ("train", "valid"):
        for id in (7, 3):
            photo(tmp_path / part / f"{id}.jpg", WIDTH, HEIGHT)
        (tmp_path / part / "_annotations.coco.json").write_text(json.dumps(content([annotation(1)])))
    data = open_scenes(str(tmp_path), ScenesConfig())
    assert data.format == "coco"
    assert len(data.train) == 1 and len(data.test) == 2


@given(st.integers(1, 30), st.integers(1, 30), st.floats(0, 1), st.integers(0, 2**31))
def test_run_lengths_are_those_that_were_compressed(height: int, width: int, share: float, seed: int) -> None:
    mask = (np.random.default_rng(seed).random((height, width)) < share).astype(np.uint8)
    assert run_lengths(encode_masks(mask[None])[0]["counts"]) == uncompressed(mask)["counts"]


@given(st.lists(st.integers(0, 3), max_size=6), st.integers(0, 2**31))
def test_packing_loses_nothing(counts: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    scenes = []
    for count in counts:
        masks: list[Any] = list(encode_masks(rng.integers(0, 2, (count, 5, 4)))) if count else []
        if count:
            masks[0] = None
        flags = rng.integers(0, 2, (2, count)).astype(bool)
        boxes = rng.random((count, 4)).astype(np.float32)
        scenes.append(Objects(boxes, rng.integers(0, 9, count), flags[0], flags[1], masks))
    packed = Annotations.pack([(5, 4)] * len(counts), scenes)
    for id, scene in enumerate(scenes):
        back = packed.objects(id)
        assert all(np.array_equal(a, b) for a, b in zip(scene[:4], back[:4], strict=True))
        assert back.masks == scene.masks
    assert packed.count_learnable().tolist() == [int((~scene.crowd).sum()) for scene in scenes]
