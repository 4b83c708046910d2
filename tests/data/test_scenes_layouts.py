"""Every layout in which people have annotations is understood as it was drawn."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from csml.config import ScenesConfig
from csml.data.scenes.annotations import Scenes, decode_masks
from csml.data.scenes.open import SceneSplits, open_scenes
from csml.data.scenes.splitting import stratified
from csml.errors import CsmlError
from scene_drawing import COUNT, SIDE, drawn
from scene_files import photo
from scene_layouts import LAYOUTS, raccoon, write, xml

DRAWN = {scene.name: scene for scene in drawn()}


def opened(root: Path, **settings) -> SceneSplits:
    return open_scenes(str(root), ScenesConfig(), **settings)


def stems(scenes: Scenes) -> list[str]:
    return [Path(scenes.images.name(id)).stem for id in range(len(scenes))]


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_is_understood_as_downloaded(name: str, tmp_path: Path) -> None:
    layout = LAYOUTS[name]
    layout.write(tmp_path)
    data = opened(tmp_path)
    assert data.format == layout.format
    assert not data.warnings
    assert len(data.test) in ((layout.tested,) if layout.tested else (2, 3))  # a fifth, and every class
    expected = COUNT - 1 if name == "roboflow" else COUNT  # its test images are left for later
    assert len(stems(data.train) + stems(data.test)) == len({*stems(data.train), *stems(data.test)}) == expected
    for scenes in (data.train, data.test):
        assert scenes.annotations.have_masks() is layout.masks
        for id, stem in enumerate(stems(scenes)):
            found, truth = scenes.annotations.objects(id), DRAWN[stem]
            order, wanted = np.lexsort(found.boxes.T), np.lexsort(truth.boxes.T)
            np.testing.assert_allclose(found.boxes[order], truth.boxes[wanted], atol=0.01)
            if layout.named:
                named = [scenes.classes[label] for label in found.labels[order]]
                assert named == [truth.names[place] for place in wanted]
            if layout.masks:
                masks = decode_masks([found.masks[place] for place in order], (SIDE, SIDE))
                assert np.array_equal(masks, truth.masks[wanted])


def test_a_size_of_zero_is_a_named_repair(tmp_path: Path) -> None:
    LAYOUTS["fruit"].write(tmp_path)
    kinds = opened(tmp_path).repairs.by_kind()
    assert kinds == {"stated size is wrong, the size of the image is used": ["scene-1.jpg"]}


def test_an_odd_line_of_a_labelmap_is_a_named_repair(tmp_path: Path) -> None:
    LAYOUTS["pascal-masks"].write(tmp_path)
    write(tmp_path / "labelmap.txt", f"{(tmp_path / 'labelmap.txt').read_text()}\nlion:a,b,c::\n")
    data = opened(tmp_path)
    assert set(data.repairs.rows) == {
        ("line cannot be read, skipped", "labelmap.txt", "line 6: invalid literal for int() with base 10: 'a'")
    }
    assert set(data.train.classes) == {name for scene in DRAWN.values() for name in scene.names}


def test_a_part_can_be_opened_alone(tmp_path: Path) -> None:
    LAYOUTS["fruit"].write(tmp_path)
    data = opened(tmp_path / "train_zip")
    assert (len(data.train), len(data.test)) == (4, 3)  # each of three classes is tested
    assert "drawn from it" in data.notes[0]


def test_parts_can_be_named(tmp_path: Path) -> None:
    LAYOUTS["roboflow"].write(tmp_path)
    usual = opened(tmp_path)
    assert "not used: test/_annotations.coco.json" in usual.notes[0]
    assert len(opened(tmp_path, test_names=["test/_annotations.coco.json"]).test) == 1
    LAYOUTS["cards"].write(tmp_path / "cards")
    assert len(opened(tmp_path / "cards", train_names=["test"], test_names=["train"]).test) == 7


def test_a_split_is_fixed_by_its_seed_and_has_every_class_on_both_sides(tmp_path: Path) -> None:
    raccoon(tmp_path)
    one, two = opened(tmp_path, split=0.3), opened(tmp_path, split=0.3)
    assert stems(one.test) == stems(two.test) and len(one.test) == 3
    other = open_scenes(str(tmp_path), ScenesConfig(split_seed=3), split=0.3)
    assert stems(one.test) != stems(other.test)
    for scenes in (one.train, one.test):
        assert set(scenes.annotations.labels.tolist()) == {0, 1, 2}
    assert not {*stems(one.train)} & {*stems(one.test)}


def test_a_split_takes_its_share_of_rare_and_common_classes(tmp_path: Path) -> None:
    LAYOUTS["cvat"].write(tmp_path)
    whole = opened(tmp_path, split=0.5)
    train, test = stratified(whole.train.annotations, 0.4, seed=0)
    assert len(test) == round(0.4 * len(whole.train.annotations))
    assert sorted([*train, *test]) == list(range(len(whole.train.annotations)))


@pytest.mark.parametrize("seed", range(8))
def test_a_drawn_split_keeps_copies_of_an_image_together(tmp_path: Path, seed: int) -> None:
    """The raccoons as downloaded have one photo twice, under two names."""
    raccoon(tmp_path)
    for number in range(4):
        shutil.copy(tmp_path / "images/scene-0.jpg", tmp_path / f"images/copy-{number}.jpg")
        write(tmp_path / f"annotations/copy-{number}.xml", xml(DRAWN["scene-0"]).replace("scene-0", f"copy-{number}"))
    data = open_scenes(str(tmp_path), ScenesConfig(split_seed=seed), split=0.3)
    alike = {"scene-0", *(f"copy-{number}" for number in range(4))}
    assert len(alike & {*stems(data.test)}) in (0, 5)
    assert len(data.train) + len(data.test) == 14 and not data.warnings


def test_a_split_overrides_the_parts_of_the_data(tmp_path: Path) -> None:
    LAYOUTS["cards"].write(tmp_path)
    assert len(opened(tmp_path, split=0.5).test) == 5


def test_the_same_image_in_train_and_test_is_a_warning(tmp_path: Path) -> None:
    LAYOUTS["cards"].write(tmp_path)
    shutil.copy(tmp_path / "images/train/scene-0.JPG", tmp_path / "images/test/copy.JPG")
    write(tmp_path / "images/test/copy.xml", xml(DRAWN["scene-0"]))
    (warning,) = opened(tmp_path).warnings
    assert "1 of 4 test images are also training images" in warning and "copy.JPG" in warning


def test_an_image_of_another_part_is_not_taken_for_a_missing_one(tmp_path: Path) -> None:
    LAYOUTS["cards"].write(tmp_path)
    shutil.copy(tmp_path / "images/train/scene-0.JPG", tmp_path / "images/test/scene-1.JPG")
    (tmp_path / "images/train/scene-1.JPG").unlink()
    assert opened(tmp_path).repairs.by_kind() == {"image missing, skipped": ["scene-1.JPG"]}


@pytest.mark.parametrize(
    ("name", "change", "problem"),
    [
        ("raccoon", lambda root: shutil.rmtree(root / "images"), r"no annotated image .* \(image missing, skipped: s"),
        ("raccoon", lambda root: shutil.rmtree(root / "annotations"), r"no annotations were recognised .*3 .csv files"),
        ("yolo-plain", lambda root: shutil.rmtree(root / "labels"), "no annotations were recognised"),
        ("nuclei", lambda root: shutil.rmtree(root / "stage1_train"), "no annotations were recognised"),
        ("cvat", lambda root: raccoon(root), "several formats; give --format voc or coco"),
        ("cvat", lambda root: (root / "annotations/instances_default.json").write_text('{"images": [], "annotations"'),
         "cannot be read as JSON"),
        ("yolo", lambda root: (root / "data.yaml").write_text("names: [a\n"), "data.yaml cannot be read as YAML"),
        ("raccoon", lambda root: [path.write_text("<annotation></annotation>") for path in root.glob("*/*.xml")],
         r"the 10 annotation files to train on in .* name no object"),
    ],
)  # fmt: skip
def test_a_message_names_the_real_cause(name: str, change, problem: str, tmp_path: Path) -> None:
    LAYOUTS[name].write(tmp_path)
    change(tmp_path)
    with pytest.raises(CsmlError, match=problem):
        opened(tmp_path)


def test_odd_lines_of_yolo_are_named(tmp_path: Path) -> None:
    LAYOUTS["yolo"].write(tmp_path)
    file = tmp_path / "train/labels/scene-0.txt"
    odd = "1 0.5 0.5\nx 0.5 0.5 0.1 0.1\ninf 0.5 0.5 0.1 0.1\n7 0.5 0.5 0.2 0.2\n0 1.2 0.5 0.2 0.2\n"
    file.write_text(f"{file.read_text()}\n{odd}")
    data = opened(tmp_path)
    kinds = data.repairs.by_kind()
    assert kinds["line cannot be read, skipped"] == ["scene-0.txt"] * 3
    assert "7" in data.train.classes and kinds["box without area, skipped"] == ["scene-0.jpg"]


@pytest.mark.parametrize(
    ("lists", "prefix", "path"),
    [
        ("", "images/", "."), ("", "./images/", "/elsewhere/set"), ("lists/", "../images/", "."),
        ("lists/", "images/", "."), ("", "", "images"), ("", "/elsewhere/set/images/", "/elsewhere/set"),
    ],
)  # fmt: skip
def test_a_list_of_yolo_means_the_images_at_its_paths(lists: str, prefix: str, path: str, tmp_path: Path) -> None:
    """Train and val have an image of the same name, and a name may have a space."""
    wanted = {"train": ["0001.jpg", "IMG 002.jpg"], "val": ["0001.jpg"]}
    for part, files in wanted.items():
        for name in files:
            photo(tmp_path / "images" / part / name)
            write(tmp_path / "labels" / part / f"{Path(name).stem}.txt", "0 0.5 0.5 0.2 0.2\n")
        write(tmp_path / f"{lists}{part}.txt", "\n".join(f"{prefix}{part}/{name}" for name in files))
    described = f"path: {path}\ntrain: {lists}train.txt\nval: {lists}val.txt\nnames: [cat]\n"
    write(tmp_path / "data.yaml", described)
    data = opened(tmp_path)
    for part, scenes in (("train", data.train), ("val", data.test)):
        found = [scenes.images.name(id) for id in range(len(scenes))]
        assert found == [f"images/{part}/{name}" for name in wanted[part]]


def test_a_list_of_yolo_cannot_lead_out_of_the_data_set(tmp_path: Path) -> None:
    LAYOUTS["yolo"].write(tmp_path / "data")
    photo(tmp_path / "outside/scene-1.jpg")
    write(tmp_path / "data/train.txt", f"scene-0.jpg\n\n{tmp_path}/outside/scene-1.jpg\n../outside/scene-2.jpg\n")
    described = (tmp_path / "data/data.yaml").read_text().replace("../train/images", "train.txt")
    write(tmp_path / "data/data.yaml", described)
    train = opened(tmp_path / "data").train.images
    names = [train.name(id) for id in range(len(train))]
    assert names == [f"train/images/scene-{number}.jpg" for number in range(3)]


def test_the_splits_of_yolo_are_those_of_data_yaml_also_through_a_link(tmp_path: Path) -> None:
    LAYOUTS["yolo"].write(tmp_path / "data")
    (tmp_path / "link").symlink_to(tmp_path / "data")
    plain, linked = opened(tmp_path / "data"), opened(tmp_path / "link")
    assert stems(linked.test) == stems(plain.test) and stems(linked.train) == stems(plain.train)


def test_polygons_of_yolo_are_masks(tmp_path: Path) -> None:
    LAYOUTS["yolo"].write(tmp_path)
    for file in tmp_path.glob("*/labels/*.txt"):
        file.write_text("0 0.25 0.25 0.75 0.25 0.75 0.5 0.25 0.5")
    data = opened(tmp_path)
    assert data.train.annotations.have_masks()
    assert data.train.annotations.objects(0).boxes.tolist() == [[16, 16, 48, 32]]
