"""Hostile annotations: VOC's XML and COCO's JSON either work, perhaps repaired, or end in one line."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_parsers import FUZZED, damaged
from watching import check

from csml.config import ScenesConfig
from csml.data.scenes.open import open_scenes
from scene_files import photo, voc_folder, voc_object, voc_xml

_COCO: dict[str, Any] = {
    "images": [{"id": 1, "file_name": "a.jpg", "width": 60, "height": 40}],
    "annotations": [
        {"id": 1, "image_id": 1, "category_id": 1, "bbox": [5, 5, 20, 20], "area": 400, "iscrowd": 0,
         "segmentation": [[5, 5, 25, 5, 25, 25]]}
    ],
    "categories": [{"id": 1, "name": "cat"}],
}  # fmt: skip
ODD: list[Any] = [
    [], {}, None, True, "x", "", "1", -1, 0, 1.5, 10**400, float("inf"), float("nan"), [[]], [{}], "\ud800", [1] * 9,
    ["a", "b", "c", "d"], [1e308] * 4, {"counts": "x", "size": [40, 60]}, {"counts": [1] * 9, "size": [10**9, 10**9]},
    {"counts": "0" * 9, "size": [-1, 4]}, [[1, 2]], [[float("nan")] * 6], [[10**400] * 6], "../../etc/passwd",
    "/dev/zero",
]  # fmt: skip
XML = (
    b"<object>", b"</object>", b"<name>", b"inf", b"nan", b"1e999", b"9" * 5000, b"&a;",
    b"<!DOCTYPE a [<!ENTITY a 'aaaa'>]>",
    b"<?xml version='1.0' encoding='bogus'?>", b"<?xml version='1.0' encoding='utf-7'?>", b"\xff", b"\0", b"<a>", b"-",
)  # fmt: skip


def coco_folder(root: Path) -> Path:
    photo(root / "train2017" / "a.jpg")
    photo(root / "val2017" / "a.jpg")
    (root / "annotations").mkdir()
    for split in ("train", "val"):
        (root / "annotations" / f"instances_{split}2017.json").write_text(json.dumps(_COCO))
    return root


def opened(root: Path) -> None:
    open_scenes(str(root), ScenesConfig())


PLACES = [
    (part, key) for part, rows in _COCO.items() for key in rows[0]
] + [("images", ""), ("annotations", ""), ("categories", "")]  # fmt: skip


@pytest.mark.parametrize(("part", "key"), PLACES, ids=["-".join(place) for place in PLACES])
def test_odd_values_in_coco(part: str, key: str, tmp_path: Path) -> None:
    root = coco_folder(tmp_path)
    for odd in ODD:
        content = copy.deepcopy(_COCO)
        if key:
            content[part][0][key] = odd
        else:
            content[part] = odd
        text = json.dumps(content).encode()
        check(lambda path: opened(root), text, root / "annotations", "instances_train2017.json")


def test_damaged_coco(tmp_path: Path) -> None:
    root = coco_folder(tmp_path)

    @FUZZED
    @given(damaged([json.dumps(_COCO).encode()], (b"[", b"{", b"Infinity", b"NaN", b"9" * 5000, b'"\\ud800"', b"null")))
    def holds(content: bytes) -> None:
        check(lambda path: opened(root), content, root / "annotations", "instances_train2017.json")

    holds()


def test_damaged_voc(tmp_path: Path) -> None:
    good = voc_xml("a", voc_object("cat", 5, 5, 20, 20))
    lists = {"trainval": {"a": good, "b": good}, "test": {"c": good}}
    root = voc_folder(tmp_path, lists)

    @FUZZED
    @given(damaged([good.encode()], XML), st.sampled_from(["Annotations/a.xml", "ImageSets/Main/trainval.txt"]))
    def holds(content: bytes, file: str) -> None:
        (root / "Annotations/a.xml").write_text(good)
        (root / "ImageSets/Main/trainval.txt").write_text("a\nb\n")
        check(lambda path: opened(root), content, (root / file).parent, Path(file).name)

    holds()
