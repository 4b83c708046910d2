"""Data sets of Hugging Face: in memory, saved to disk, Parquet and Arrow files."""

import io
import pickle
from pathlib import Path

import datasets
import numpy as np
import pytest
from PIL import Image

import csml
from csml.api.data import data_setting, open_splits
from csml.config import ImagesConfig
from csml.data import open_data
from csml.data.open import DataSplits
from csml.distributed.world import World
from csml.errors import CsmlError

FEATURES = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})


def png(colour: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (12, 10), (colour, 0, 0)).save(buffer, "PNG")
    return buffer.getvalue()


def pictures(*colours: int) -> datasets.Dataset:
    rows = {"image": [{"bytes": png(colour), "path": None} for colour in colours], "label": [c % 2 for c in colours]}
    return datasets.Dataset.from_dict(rows, features=FEATURES)


def opened(data: object, **settings: object) -> DataSplits:
    setting, in_memory = data_setting(data)
    return open_splits(World(), str(setting), ImagesConfig(**settings), in_memory)  # type: ignore[arg-type]


def colours(images: object) -> list[int]:
    return [images.read(id).getpixel((0, 0))[0] for id in range(len(images))]  # type: ignore[attr-defined, arg-type]


@pytest.fixture(params=["memory", "disk", "parquet", "arrow"])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> object:
    made = pictures(*range(10))
    if request.param == "memory":
        return made
    if request.param == "disk":
        made.save_to_disk(tmp_path / "saved")
        return tmp_path / "saved"
    if request.param == "parquet":
        made.to_parquet(tmp_path / "x.parquet")
        return tmp_path / "x.parquet"
    made.save_to_disk(tmp_path / "saved")
    return next((tmp_path / "saved").glob("*.arrow"))


def test_images_and_labels_are_those_of_the_data_set(data: object) -> None:
    splits = opened(data)
    assert colours(splits.train) == list(range(10))
    assert splits.train.classes == ("cat", "dog") and splits.train.labels.tolist() == [0, 1] * 5
    assert splits.val is not None and np.bincount(splits.val.labels).tolist() == [1, 1]
    again = opened(data).train
    assert again.fingerprint() == splits.train.fingerprint() == opened(pictures(*range(10))).train.fingerprint()
    assert colours(pickle.loads(pickle.dumps(again))) == list(range(10))
    assert opened(pictures(*range(1, 11))).train.fingerprint() != again.fingerprint()


@pytest.mark.parametrize("test", ["validation", "test"])
def test_the_splits_of_a_data_set_are_used_as_such(tmp_path: Path, test: str) -> None:
    both = datasets.DatasetDict({test: pictures(8, 9, 11), "train": pictures(1, 2, 3)})
    both.save_to_disk(tmp_path / "saved")
    for source in (both, tmp_path / "saved"):
        splits = opened(source)
        assert splits.val is not None
        assert colours(splits.train) == [1, 2, 3] and colours(splits.val) == [8, 9, 11]
        assert splits.val.labels.tolist() == [0, 1, 1]


def test_labels_may_be_text_or_missing(tmp_path: Path) -> None:
    images = [{"bytes": png(i), "path": None} for i in range(3)]
    kinds = datasets.Features({"photo": datasets.Image(), "label": datasets.Value("string")})
    text = datasets.Dataset.from_dict({"photo": images, "label": ["b", None, "a"]}, features=kinds)
    splits = opened(text)
    assert splits.train.classes == ("a", "b") and splits.train.labels.tolist() == [1, -1, 0]
    assert opened(text.remove_columns("label")).train.classes == ()
    text.save_to_disk(tmp_path / "saved")
    assert opened(tmp_path / "saved", labels="none").train.classes == ()


@pytest.mark.parametrize("kind", ["int8", "int32", "uint8", "int64", "string", "large_string"])
def test_labels_of_any_width_are_classes(kind: str) -> None:
    assert labelled_by(datasets.Value(kind), ["2", "10", "2"] if "string" in kind else [2, 10, 2]) == ["2", "10", "2"]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (datasets.Sequence(datasets.Value("int64")), [[1, 2], [], [1]]),
        ({"name": datasets.Value("string")}, [{"name": "a"}] * 3),
        (datasets.Value("float32"), [0.1, 0.2, 0.3]),
        (datasets.Array2D((1, 2), "int64"), [[[1, 2]]] * 3),
    ],
)
def test_a_column_with_more_than_a_name_or_number_is_not_the_class(kind: object, values: list[object]) -> None:
    assert labelled_by(kind, values) == []


def labelled_by(kind: object, values: list[object]) -> list[str]:
    """The classes of three images whose column `label` has these values; none if it is not taken as their class."""
    features = datasets.Features({"image": datasets.Image(), "label": kind})
    images = [{"bytes": png(i), "path": None} for i in range(3)]
    train = opened(datasets.Dataset.from_dict({"image": images, "label": values}, features=features)).train
    return [train.classes[label] for label in train.labels if label >= 0]


def test_files_beside_the_data_set_and_missing_images(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png(5))
    rows = {"image": [str(tmp_path / "a.png"), str(tmp_path / "gone.png"), None]}
    made = datasets.Dataset.from_dict(rows, features=datasets.Features({"image": datasets.Image()}))
    splits = opened(made)
    assert splits.train.read(0).getpixel((0, 0)) == (5, 0, 0)
    import torch

    _, good = splits.train.cut(np.arange(3), [(lambda rows, sizes: torch.tensor([[0, 0, 1, 1]] * len(sizes)), 2)])
    assert good.tolist() == [True, False, False]


def test_it_can_stand_beside_a_folder(tmp_path: Path) -> None:
    pictures(1, 2).save_to_disk(tmp_path / "saved")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/a.png").write_bytes(png(3))
    assert colours(open_data(f"{tmp_path}/saved,{tmp_path}/photos", ImagesConfig()).train) == [1, 2, 3]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: datasets.Dataset.from_dict({"text": ["a"]}), "has no column of images; its columns are text"),
        (lambda: pictures(), "is empty"),
        (lambda: pictures(1).to_iterable_dataset(), "has no random access"),
    ],
)
def test_what_has_no_images_is_one_line(make: object, message: str) -> None:
    with pytest.raises(CsmlError, match=message) as caught:
        opened(make())  # type: ignore[operator]
    assert "\n" not in str(caught.value)


def test_what_is_damaged_or_cannot_be_reached_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.parquet").write_bytes(b"not parquet")
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved/state.json").write_text("{")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    for source in (tmp_path / "x.parquet", tmp_path / "saved", "hf:nobody/nothing"):
        with pytest.raises(CsmlError, match="cannot be read with datasets") as caught:
            opened(source)
        assert "\n" not in str(caught.value)


def test_a_network_learns_from_it(tmp_path: Path) -> None:
    small = {"contrast.queue_length": 8, "contrast.bn_splits": 1, "images.size": 16, "hardware.threads": 1}
    small |= {"monitor.tensorboard": False, "neighbors.k": 3, "neighbors.warmup_epochs": 0}
    run = csml.pretrain(pictures(*range(16)), tmp_path / "run", preset="demo", epochs=1, batch_size=8, **small)
    assert run.knn(k=[1]).tested == 4
