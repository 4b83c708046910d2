"""`csml scenes`: what is said, drawn and converted."""

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO

import csml as library
from conftest import csml
from csml.config import ScenesConfig
from csml.data.scenes.open import open_scenes
from scene_drawing import drawn
from scene_layouts import LAYOUTS


def test_the_command_says_what_was_understood(tmp_path: Path) -> None:
    LAYOUTS["fruit"].write(tmp_path / "fruit")
    done = csml("scenes", "fruit", "--repairs", "repairs.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "format voc; train: train; test: test" in done.stderr
    assert "stated size is wrong, the size of the image is used: 1 (scene-1.jpg)" in done.stderr
    names = [name for scene in drawn()[:7] for name in scene.names]
    for name in set(names):
        assert any(name in line and f" {names.count(name)} " in line for line in done.stdout.splitlines())
    assert Image.open(tmp_path / "scenes.png").width > 5 * 256
    with (tmp_path / "repairs.csv").open() as file:
        assert [row["image"] for row in csv.DictReader(file)] == ["scene-1.jpg"]


@pytest.mark.parametrize("name", ["penn-fudan", "yolo", "raccoon"])
def test_what_is_converted_to_coco_is_the_same(name: str, tmp_path: Path) -> None:
    LAYOUTS[name].write(tmp_path / "data")
    result = library.scenes(tmp_path / "data", coco=tmp_path / "coco")
    before = {part: result.parts[part].scenes for part in ("train", "test")}
    again = open_scenes(str(tmp_path / "coco"), ScenesConfig())
    assert again.format == "coco"
    for part, scenes in (("train", again.train), ("test", again.test)):
        assert scenes.classes == before[part].classes
        assert np.array_equal(scenes.annotations.boxes, before[part].annotations.boxes)
        assert np.array_equal(scenes.annotations.counts, before[part].annotations.counts)
        theirs = COCO(str(tmp_path / f"coco/annotations/instances_{part}.json"))
        assert len(theirs.getAnnIds()) == len(scenes.annotations.boxes)


def test_nothing_is_written_over(tmp_path: Path) -> None:
    LAYOUTS["raccoon"].write(tmp_path / "data")
    done = csml("scenes", "data", "--coco", "data", cwd=tmp_path)
    assert done.returncode == 2 and "coco: data exists and is not empty" in done.stderr
