"""VOC's layout, whole and damaged."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from csml.config import ScenesConfig
from csml.data.scenes.open import open_scenes
from csml.errors import CsmlError
from scene_files import photo, voc_folder, voc_object, voc_xml


@pytest.fixture
def voc(tmp_path: Path) -> Path:
    cat, dog = voc_object("cat", 1, 1, 20, 10), voc_object("dog", 11, 5, 60, 40)
    lists = {"trainval": {"a": voc_xml("a", cat + dog), "b": voc_xml("b", dog)}, "test": {"c": voc_xml("c", cat)}}
    return voc_folder(tmp_path / "VOC2007", lists)


def kinds(data) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for kind, image, _ in data.repairs.rows:
        found.setdefault(kind, []).append(image)
    return found


def test_boxes_count_from_zero_and_end_after_the_last_pixel(voc: Path) -> None:
    data = open_scenes(str(voc), ScenesConfig())
    objects = data.train.annotations.objects(0)
    assert data.format == "voc"
    assert data.train.classes == ("cat", "dog")
    assert objects.boxes.tolist() == [[0, 0, 20, 10], [10, 4, 60, 40]]
    assert objects.labels.tolist() == [0, 1]
    assert data.train.annotations.sizes.tolist() == [[40, 60], [40, 60]]
    assert data.test.image_ids == ("c",)
    assert not data.repairs.rows


def test_years_are_joined_and_tested_on_2007(voc: Path) -> None:
    more = voc_xml("2012_1", voc_object("eel", 2, 2, 9, 9))
    voc_folder(voc.parent / "VOC2012", {"trainval": {"2012_1": more}})
    data = open_scenes(str(voc.parent), ScenesConfig())
    assert data.train.classes == ("cat", "dog", "eel")
    assert data.train.image_ids == ("VOC2007/a", "VOC2007/b", "VOC2012/2012_1")
    assert data.test.image_ids == ("c",)


def test_only_the_first_year_that_has_a_test_list_tests(voc: Path) -> None:
    cat = voc_object("cat", 1, 1, 20, 10)
    voc_folder(voc.parent / "VOC2012", {"trainval": {"d": voc_xml("d", cat)}, "test": {"e": voc_xml("e", cat)}})
    assert open_scenes(str(voc.parent), ScenesConfig()).test.image_ids == ("c",)


def test_lists_can_be_named(voc: Path) -> None:
    data = open_scenes(str(voc.parent), ScenesConfig(), "voc", ["VOC2007/test"], ["VOC2007/trainval"])
    assert (len(data.train), len(data.test)) == (1, 2)


def test_difficult_objects_are_marked_and_learnt(voc: Path) -> None:
    (voc / "Annotations/a.xml").write_text(voc_xml("a", voc_object("cat", 1, 1, 20, 10, difficult=1)))
    objects = open_scenes(str(voc), ScenesConfig()).train.annotations.objects(0)
    assert objects.difficult.tolist() == [True]
    assert not objects.crowd.any()


@pytest.mark.parametrize(
    ("corners", "kind", "kept"),
    [
        ((20, 10, 1, 1), "box with swapped corners, corrected", [0, 0, 20, 10]),
        ((-5, 3, 20, 70), "box past the border, clipped", [0, 2, 20, 40]),
        ((5, 50, 9, 60), "box without area, skipped", None),
        ((70, 5, 90, 9), "box without area, skipped", None),
        (("x", 5, 4, 9), "object cannot be read, skipped", None),
        (("nan", 5, 4, 9), "object without a box, skipped", None),
    ],
)
def test_odd_boxes_are_repaired_or_skipped_and_named(voc: Path, corners, kind: str, kept: list[float] | None) -> None:
    text = voc_xml("a", voc_object("cat", *corners) + voc_object("dog", 11, 5, 60, 40))
    (voc / "Annotations/a.xml").write_text(text)
    data = open_scenes(str(voc), ScenesConfig())
    boxes = data.train.annotations.objects(0).boxes.tolist()
    assert boxes == ([kept] if kept else []) + [[10, 4, 60, 40]]
    assert kinds(data)[kind] == ["a.jpg" if "cannot be read" not in kind else "a.xml"]


def test_missing_and_broken_files_are_skipped_and_named(voc: Path) -> None:
    dog = voc_object("dog", 11, 5, 60, 40)
    for stem in ("gone", "torn", "noxml", "badxml"):
        photo(voc / "JPEGImages" / f"{stem}.jpg")
        (voc / "Annotations" / f"{stem}.xml").write_text(voc_xml(stem, dog))
    (voc / "JPEGImages/gone.jpg").unlink()
    (voc / "JPEGImages/torn.jpg").write_bytes(b"no picture")
    (voc / "Annotations/noxml.xml").unlink()
    (voc / "Annotations/badxml.xml").write_text("<annotation><object>")
    with (voc / "ImageSets/Main/trainval.txt").open("a") as file:
        file.write("gone\ntorn\nnoxml\nbadxml\n")
    data = open_scenes(str(voc), ScenesConfig())
    assert data.train.image_ids == ("a", "b")
    assert kinds(data) == {
        "annotation missing, image skipped": ["noxml.xml"],
        "annotation cannot be read, image skipped": ["badxml.xml"],
        "image missing, skipped": ["gone.jpg"],
        "image cannot be read, skipped": ["torn.jpg"],
    }


def test_a_broken_mask_is_left_out_and_named(voc: Path) -> None:
    (voc / "SegmentationObject").mkdir()
    for stem in ("a", "b"):
        Image.fromarray(np.ones((40, 60), np.uint8)).save(voc / "SegmentationObject" / f"{stem}.png")
    torn = voc / "SegmentationObject/a.png"
    torn.write_bytes(torn.read_bytes()[:50])
    (voc / "Annotations/b.xml").write_text(voc_xml("b", voc_object("dog", 1, 1, 60, 40)))
    data = open_scenes(str(voc), ScenesConfig())
    assert [objects.masks.count(None) for objects in map(data.train.annotations.objects, (0, 1))] == [2, 0]
    assert kinds(data) == {"mask cannot be read, left out": ["a.png"]}


def test_objects_follow_an_image_that_was_made_smaller(voc: Path) -> None:
    (voc / "Annotations/b.xml").write_text(voc_xml("b", voc_object("dog", 101, 1, 600, 200), width=600, height=400))
    data = open_scenes(str(voc), ScenesConfig())
    assert data.train.annotations.objects(1).boxes.tolist() == [[10, 0, 60, 20]]
    assert kinds(data) == {"image was resized, its objects are scaled": ["b.jpg"]}


def test_the_image_is_right_about_its_size(voc: Path) -> None:
    (voc / "Annotations/b.xml").write_text(voc_xml("b", voc_object("dog", 1, 1, 60, 40), width=600, height=40))
    data = open_scenes(str(voc), ScenesConfig())
    assert data.train.annotations.sizes[1].tolist() == [40, 60]
    assert kinds(data) == {"stated size is wrong, the size of the image is used": ["b.jpg"]}


def test_an_image_whose_annotation_ignores_its_rotation_is_taken_as_stored(voc: Path) -> None:
    photo(voc / "JPEGImages/b.jpg", exif_turn=6)  # stored 60 × 40, shown 40 × 60
    data = open_scenes(str(voc), ScenesConfig())
    assert data.train.annotations.sizes[1].tolist() == [40, 60]
    assert data.train.images.read(1).size == (60, 40)


def test_a_class_that_is_only_tested_is_left_out_and_named(voc: Path) -> None:
    (voc / "Annotations/c.xml").write_text(voc_xml("c", voc_object("yak", 1, 1, 20, 10)))
    data = open_scenes(str(voc), ScenesConfig())
    assert len(data.test.annotations.boxes) == 0
    assert kinds(data) == {"class yak is not in the training set, its objects are left out": ["c.jpg"]}


def test_images_without_objects_are_learnt_from_only_if_asked(voc: Path) -> None:
    (voc / "Annotations/b.xml").write_text(voc_xml("b", ""))
    assert len(open_scenes(str(voc), ScenesConfig()).train) == 1
    assert len(open_scenes(str(voc), ScenesConfig(keep_empty=True)).train) == 2


def test_a_list_that_is_not_there_is_one_line(voc: Path) -> None:
    with pytest.raises(CsmlError, match=r"train: .* has no nothing; there are test, trainval"):
        open_scenes(str(voc), ScenesConfig(), "voc", ["nothing"], ["test"])
    shutil.rmtree(voc / "Annotations")
    with pytest.raises(CsmlError, match=r"no annotations were recognised in .*it holds 3 images"):
        open_scenes(str(voc), ScenesConfig())
    with pytest.raises(CsmlError, match=r"has none of the 2 XML files that ImageSets/Main/trainval.txt names, such as"):
        open_scenes(str(voc), ScenesConfig(), "voc")


def test_parts_of_objects_are_not_objects(voc: Path) -> None:
    head = "<part><name>head</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>5</xmax><ymax>5</ymax></bndbox></part>"
    text = voc_xml("b", voc_object("dog", 1, 1, 60, 40).replace("</object>", head + "</object>"))
    (voc / "Annotations/b.xml").write_text(text)
    data = open_scenes(str(voc), ScenesConfig())
    assert np.array_equal(data.train.annotations.objects(1).boxes, [[0, 0, 60, 40]])
