"""One `--data` value, understood as people mean it."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from csml.api.images import open_all_images
from csml.config import ImagesConfig
from csml.data import FolderImages, open_data
from csml.data.downloads import CIFAR10_CLASSES, decode_cifar10_package
from csml.data.images import Images
from csml.distributed.world import World
from csml.errors import CsmlError


def picture(path: Path, colour: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (12, 10), (colour, 0, 0)).save(path)


def test_class_folders_give_labels_and_a_held_out_fifth_of_each(tmp_path: Path) -> None:
    for name, count in (("cat", 10), ("dog", 20)):
        for i in range(count):
            picture(tmp_path / name / f"{i}.png")
    data = open_data(str(tmp_path), ImagesConfig())
    assert data.train.classes == ("cat", "dog")
    assert np.bincount(data.train.labels).tolist() == [10, 20]  # pre-training sees everything
    assert data.labeled is not None
    assert data.val is not None
    assert np.bincount(data.val.labels).tolist() == [2, 4]
    assert np.bincount(data.labeled.labels).tolist() == [8, 16]
    held = {data.val.name(i) for i in range(len(data.val))}
    kept = {data.labeled.name(i) for i in range(len(data.labeled))}
    assert not held & kept
    assert len(held | kept) == 30
    for i in range(len(data.val)):
        assert data.val.name(i).startswith(data.val.classes[data.val.labels[i]])


def test_a_sample_is_fixed_and_takes_its_share_of_every_class(tmp_path: Path) -> None:
    for name, count in (("cat", 10), ("dog", 20)):
        for i in range(count):
            picture(tmp_path / "train" / name / f"{i}.png")
        picture(tmp_path / "val" / name / "1.png")
    whole = open_data(str(tmp_path), ImagesConfig())
    data = open_data(str(tmp_path), ImagesConfig(sample=12))
    assert np.bincount(data.train.labels).tolist() == [4, 8]
    assert data.labeled is data.train
    assert data.val is not None
    assert len(data.val) == 2
    assert data.train.fingerprint() == open_data(str(tmp_path), ImagesConfig(sample=12)).train.fingerprint()
    assert len({data.train.name(i) for i in range(12)}) == 12
    assert open_data(str(tmp_path), ImagesConfig(sample=1000)).train.fingerprint() == whole.train.fingerprint()


def names_of(images: Images | None) -> set[str]:
    assert images is not None
    return {images.name(i) for i in range(len(images))}


@pytest.mark.parametrize("with_test_images", [True, False])
def test_validation_images_are_cut_from_the_training_images_and_test_images_stay_unseen(
    tmp_path: Path, with_test_images: bool
) -> None:
    for name, count in (("cat", 10), ("dog", 20)):
        for i in range(count):
            picture(tmp_path / ("train" if with_test_images else ".") / name / f"{i}.png")
        if with_test_images:
            picture(tmp_path / "val" / name / "unseen.png")
    plain = open_data(str(tmp_path), ImagesConfig())
    data = open_data(str(tmp_path), ImagesConfig(test="validation"))
    assert data.val is not None and data.labeled is not None
    assert np.bincount(data.val.labels).tolist() == ([2, 4] if with_test_images else [2, 3])  # a fifth of each class
    held, kept, learnt = names_of(data.val), names_of(data.labeled), names_of(data.train)
    assert not held & kept and not held & learnt and kept <= learnt
    assert held | kept == names_of(plain.labeled)
    assert learnt | held == names_of(plain.train)
    assert any("stay unseen" in note for note in data.notes)
    for i in range(len(data.val)):
        assert data.val.name(i).startswith(data.val.classes[data.val.labels[i]])
    small = open_data(str(tmp_path), ImagesConfig(test="validation", sample=12))
    assert names_of(small.val) == held and len(small.train) == 12 and names_of(small.train) <= learnt


def test_validation_images_need_labels(tmp_path: Path) -> None:
    picture(tmp_path / "1.png")
    with pytest.raises(CsmlError, match=r"images\.test: validation images are cut from labelled ones"):
        open_data(str(tmp_path), ImagesConfig(test="validation"))


def test_train_and_val_folders_are_used_as_such(tmp_path: Path) -> None:
    for part, names in (("train", ("a", "b", "c")), ("val", ("a", "c"))):
        for name in names:
            picture(tmp_path / part / name / "1.png")
    data = open_data(str(tmp_path), ImagesConfig())
    assert data.val is not None
    assert len(data.train) == 3
    assert data.val.labels.tolist() == [0, 2]  # the training folder's numbering
    assert data.val.classes == ("a", "b", "c")


@pytest.mark.parametrize(
    "files", [["1.png", "2.png"], ["x/y/1.png", "x/2.png"], ["1.png", "a/2.png", "b/3.png"], ["one/1.png"]]
)
def test_flat_nested_and_mixed_folders_have_no_labels(tmp_path: Path, files: list[str]) -> None:
    for file in files:
        picture(tmp_path / file)
    data = open_data(str(tmp_path), ImagesConfig())
    assert len(data.train) == len(files)
    assert (data.train.labels == -1).all()
    assert data.val is None


def test_labels_can_be_refused_and_demanded(tmp_path: Path) -> None:
    picture(tmp_path / "2021" / "1.png")
    picture(tmp_path / "2022" / "1.png")
    assert open_data(str(tmp_path), ImagesConfig(labels="none")).val is None
    picture(tmp_path / "3.png")
    with pytest.raises(CsmlError, match=r"images\.labels"):
        open_data(str(tmp_path), ImagesConfig(labels="folders"))


def test_images_in_memory_are_not_looked_for_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report and the page open the data of a run by its setting, which is "memory" where there was no folder."""
    monkeypatch.chdir(tmp_path)
    picture(tmp_path / "memory" / "0.png")
    for opened in (
        lambda: open_data("memory", ImagesConfig()),
        lambda: open_all_images(World(), "memory", ImagesConfig()),
    ):
        with pytest.raises(CsmlError, match="passed in memory; pass them again as data"):
            opened()
    assert len(open_data("./memory", ImagesConfig()).train) == 1


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(CsmlError, match="no folder"):
        open_data(str(tmp_path / "nowhere"), ImagesConfig())
    with pytest.raises(CsmlError, match="no image"):
        open_data(str(tmp_path), ImagesConfig())
    (tmp_path / "file.doc").touch()
    with pytest.raises(CsmlError, match="is a file"):
        open_data(str(tmp_path / "file.doc"), ImagesConfig())
    with pytest.raises(CsmlError, match=r"left out 1 file: 1 \.doc"):
        open_data(str(tmp_path), ImagesConfig())


def test_a_val_folder_without_labels_does_not_test(tmp_path: Path) -> None:
    for name in ("a", "b"):
        for i in range(5):
            picture(tmp_path / "train" / name / f"{i}.png")
    picture(tmp_path / "test" / "1.png")
    data = open_data(str(tmp_path), ImagesConfig())
    assert data.val is not None
    assert len(data.train) == 10
    assert sorted(data.val.labels.tolist()) == [0, 1]  # held out from the training images
    assert any("a fifth of the training images is used for testing" in note for note in data.notes)


def test_a_val_folder_of_one_class_tests(tmp_path: Path) -> None:
    for path in ("train/a/1.png", "train/b/1.png", "val/b/1.png"):
        picture(tmp_path / path)
    data = open_data(str(tmp_path), ImagesConfig())
    assert data.val is not None
    assert data.val.labels.tolist() == [1]


def test_a_class_called_train_is_a_class(tmp_path: Path) -> None:
    for name in ("bus", "car", "train"):
        for i in range(3):
            picture(tmp_path / name / f"{i}.png")
    data = open_data(str(tmp_path), ImagesConfig())
    assert data.train.classes == ("bus", "car", "train")


def test_a_test_class_that_training_does_not_know_is_an_error(tmp_path: Path) -> None:
    for path in ("train/a/1.png", "train/b/1.png", "val/a/1.png", "val/z/1.png"):
        picture(tmp_path / path)
    with pytest.raises(CsmlError, match="'z'"):
        open_data(str(tmp_path), ImagesConfig())


def test_ids_name_the_same_image_every_time(tmp_path: Path) -> None:
    for i in range(5):
        picture(tmp_path / f"{i}.png", colour=40 * i)
    for _ in range(2):
        images = open_data(str(tmp_path), ImagesConfig()).train
        assert isinstance(images, FolderImages)
        assert images.name(3) == "3.png"
        assert images.read(3).getpixel((0, 0)) == (120, 0, 0)


def test_the_npm_package_of_cifar10_is_decoded_row_by_row(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (6, 32, 32, 3), dtype=np.uint8)
    for batch in (1, 2):
        rows = pictures[2 * (batch - 1) : 2 * batch].reshape(2, 1024, 3)
        Image.fromarray(rows).save(tmp_path / f"data_batch_{batch}.png")
    Image.fromarray(pictures[4:].reshape(2, 1024, 3)).save(tmp_path / "test_batch.png")
    (tmp_path / "train_lables.json").write_text(json.dumps([0, 1, 2, 3]))
    (tmp_path / "test_lables.json").write_text(json.dumps([4, 9]))
    parts = decode_cifar10_package(tmp_path)
    np.testing.assert_array_equal(parts["train"].pixels, pictures[:4])
    np.testing.assert_array_equal(parts["test"].pixels, pictures[4:])
    assert parts["train"].labels.tolist() == [0, 1, 2, 3]
    assert [CIFAR10_CLASSES[label] for label in parts["test"].labels] == ["deer", "truck"]
