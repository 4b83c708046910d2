"""Labels as people have them."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import noise_photos
from csml.config import ImagesConfig
from csml.data import open_data
from csml.data.folder_index import index_folder
from csml.data.images import FolderImages
from csml.data.labels import LabeledData, choose_labels, ids_in, stratified
from csml.data.open import DataSplits
from csml.data.tables import read_table
from csml.errors import CsmlError


@given(
    counts=st.lists(st.integers(1, 40), min_size=2, max_size=6),
    fraction=st.floats(0.01, 1.0),
    seed=st.integers(0, 1000),
)
def test_a_fraction_takes_its_share_of_every_class_and_at_least_one(
    counts: list[int], fraction: float, seed: int
) -> None:
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    chosen = stratified(labels, fraction, seed)
    assert len(np.unique(chosen)) == len(chosen)
    for label, count in enumerate(counts):
        assert (labels[chosen] == label).sum() == max(1, round(fraction * count))
    assert np.array_equal(chosen, stratified(labels, fraction, seed))


def test_another_seed_chooses_others() -> None:
    labels = np.repeat(np.arange(3), 100)
    assert not np.array_equal(stratified(labels, 0.1, 0), stratified(labels, 0.1, 1))


def flat(tmp_path: Path, count: int = 20) -> Path:
    """An unlabelled folder: some files in it, some deeper."""
    noise_photos(tmp_path / "photos", count - 5)
    noise_photos(tmp_path / "photos" / "more" / "deep", 5)
    return tmp_path / "photos"


def chosen(folder: Path, text: str, name: str = "labels.csv", holdout: float | None = 0.0) -> LabeledData:
    table = folder.parent / name
    table.write_text(text)
    return choose_labels(open_data(str(folder), ImagesConfig()), str(table), None, None, holdout, 0)


def named(labeled: LabeledData) -> dict[str, str]:
    images = labeled.train
    return {images.name(i): images.classes[label] for i, label in enumerate(images.labels.tolist())}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("labels.csv", "path,label\n00.png,cat\nmore/deep/01.png,dog\n"),
        ("labels.csv", "00.png,cat\nmore/deep/01.png,dog\n"),
        ("labels.csv", "label,id,filename\ncat,7,00.png\ndog,8,more/deep/01.png\n"),
        ("labels.csv", '"./00.png", cat \r\n\r\nmore\\deep\\01.png,dog'),
        ("labels.tsv", "path\tlabel\n00.png\tcat\nmore/deep/01.png\tdog\n"),
        ("labels.jsonl", '{"path": "00.png", "label": "cat"}\n{"path": "more/deep/01.png", "label": "dog"}\n'),
        ("labels.csv", "\ufeffpath,label\nROOT/00.png,cat\nphotos/more/deep/01.png,dog\n"),
    ],
)
def test_tables_in_the_forms_people_write_them_name_files_of_an_unlabelled_folder(
    tmp_path: Path, name: str, text: str
) -> None:
    labeled = chosen(flat(tmp_path), text.replace("ROOT", str((tmp_path / "photos").resolve())), name)
    assert named(labeled) == {"00.png": "cat", "more/deep/01.png": "dog"}
    assert labeled.train.classes == ("cat", "dog")
    assert labeled.val is None
    assert len(labeled.unlabeled) == 18
    assert not set(labeled.unlabeled.tolist()) & set(ids_in(labeled.images, labeled.train).tolist())


def test_a_file_name_alone_is_enough_where_it_is_unique(tmp_path: Path) -> None:
    for name, count in (("photos/old", 6), ("photos/new/raw", 4)):
        noise_photos(tmp_path / name, count)
    labeled = chosen(tmp_path / "photos", "05.png,cat\n04.png,dog\n00.png,dog\n")
    assert named(labeled) == {"old/05.png": "cat", "old/04.png": "dog"}  # 00.png lies in both folders
    assert any("00.png" in note for note in labeled.notes)


def test_a_path_through_another_folder_is_another_file(tmp_path: Path) -> None:
    labeled = chosen(flat(tmp_path), "00.png,cat\n01.png,dog\ntest/02.png,cat\n/elsewhere/photos/03.png,dog\n")
    assert set(named(labeled)) == {"00.png", "01.png"}
    lost = next(note for note in labeled.notes if "left out" in note)
    assert "test/02.png" in lost and "/elsewhere/photos/03.png" in lost


def test_folders_that_are_not_what_the_table_tells_apart_are_no_classes(tmp_path: Path) -> None:
    for year in ("2021", "2022"):
        noise_photos(tmp_path / "photos" / year, 5)
    labeled = chosen(tmp_path / "photos", "2021/00.png,oak\n2022/03.png,birch\n")
    assert labeled.train.classes == ("birch", "oak")
    assert len(labeled.unlabeled) == 8


def test_files_that_are_not_there_are_told_and_the_rest_is_used(tmp_path: Path) -> None:
    labeled = chosen(flat(tmp_path), "00.png,cat\n01.png,dog\nlost.png,cat\n")
    assert len(labeled.train) == 2
    assert any("left out" in note and "lost.png" in note for note in labeled.notes)


def test_a_class_with_one_label_and_a_class_in_two_spellings_are_told(tmp_path: Path) -> None:
    rows = "00.png,cat\n01.png,cat\n02.png,dog\n03.png,dog\n04.png,Cat\n"
    notes = chosen(flat(tmp_path), rows).notes
    assert any("only one of Cat; estimates" in note for note in notes)
    assert any("'Cat' and 'cat' are two classes" in note for note in notes)
    assert not any("only one" in note for note in chosen(flat(tmp_path), "00.png,cat\n01.png,dog\n").notes)


def test_a_repeated_line_is_told_and_counts_once(tmp_path: Path) -> None:
    labeled = chosen(flat(tmp_path), "00.png,cat\n01.png,dog\n00.png,cat\n")
    assert len(labeled.train) == 2
    assert any("1 lines" in note and "repeat" in note for note in labeled.notes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("00.png,cat\n00.png,dog\n", "line 2: 00.png is 'dog' here and 'cat' in line 1"),
        ("00.png,\n01.png,\n", "has no label yet"),
        (",cat\n", "line 1: the path is empty"),
        ("00.png\n", "expected path,label"),
        ("", "names no image"),
        ("lost.png,cat\ngone.png,dog\n", "none of the 2 files"),
        ("00.png,cat\n01.png,cat\n", "two classes"),
        ("path,reason,kind\n00.png,stands for 2 images,cat\n", "the columns path, reason, kind; none is called label"),
        ("photo,label\n00.png,cat\n", "none is called path"),
        ("00.png,stands for 2 images,cat\n", "3 columns and no header"),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused_with_the_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(CsmlError) as caught:
        chosen(flat(tmp_path), text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_json_lines_that_are_none_are_refused_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text('{"path": "a.png", "label": "cat"}\n{"path": "b.png"}\n')
    with pytest.raises(CsmlError, match="line 2"):
        read_table(path)
    with pytest.raises(CsmlError, match="cannot be read"):
        read_table(tmp_path / "nowhere.csv")


def test_some_labels_of_a_table_are_held_out_to_test_on(tmp_path: Path) -> None:
    rows = [f"{i:02d}.png,{'cat' if i % 2 else 'dog'}" for i in range(10)]
    labeled = chosen(flat(tmp_path), "\n".join(rows), holdout=0.2)
    assert labeled.val is not None
    assert (len(labeled.train), len(labeled.val)) == (8, 2)
    assert sorted(labeled.val.labels.tolist()) == [0, 1]
    assert len(labeled.unlabeled) == 10


@pytest.mark.parametrize(
    ("labels", "classes", "tested"),
    [(25, 5, 0), (99, 2, 0), (100, 2, 20), (100, 20, 0), (120, 20, 0), (125, 20, 20)],
)
def test_of_a_few_labels_none_is_held_out_unless_it_is_asked_for(
    tmp_path: Path, labels: int, classes: int, tested: int
) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    for i in range(labels):
        (folder / f"{i}.png").write_bytes(b"")  # never opened
    table = tmp_path / "labels.csv"
    table.write_text("".join(f"{i}.png,{i % classes:02d}\n" for i in range(labels)))
    data = DataSplits(FolderImages(index_folder(folder)), None, None)
    left = choose_labels(data, str(table), None, None, None, 0)
    asked = choose_labels(data, str(table), None, None, 0.2, 0)
    assert (0 if left.val is None else len(left.val)) == tested
    assert asked.val is not None and len(asked.val) >= 0.15 * labels
    said = "held out for testing" if tested else f"all {labels} are used for training, because there are few"
    assert any(said in note for note in left.notes)
    assert any("(--holdout 0)" in note for note in choose_labels(data, str(table), None, None, 0, 0).notes)


def folders(tmp_path: Path, counts: dict[str, int]) -> Path:
    for name, count in counts.items():
        noise_photos(tmp_path / "classes" / name, count)
    return tmp_path / "classes"


def test_a_label_that_is_no_folder_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    folder = folders(tmp_path, {"cat": 5, "dog": 5})
    with pytest.raises(CsmlError, match=r"line 2: the class 'dgo' is not a folder; did you mean 'dog'\?"):
        chosen(folder, "cat/00.png,cat\ndog/00.png,dgo\n")


def test_a_list_of_names_keeps_those_labels_by_path_or_file_name(tmp_path: Path) -> None:
    """The common lists of ImageNet hold file names, which are unique there."""
    root = tmp_path / "imagenet"
    for split, count in (("train", 6), ("val", 3)):
        for name in ("n01", "n02"):
            noise_photos(root / split / name, count)
            for file in list((root / split / name).iterdir()):
                file.rename(file.with_name(f"{name}_{split}_{file.name}"))
    list_file = tmp_path / "1percent.txt"
    list_file.write_text("n01_train_00.png\nn02_train_03.png\nn02/n02_train_01.png\nmissing.png\n")
    labeled = choose_labels(open_data(str(root), ImagesConfig()), None, str(list_file), None, 0.2, 0)
    assert named(labeled) == {
        "n01/n01_train_00.png": "n01", "n02/n02_train_01.png": "n02", "n02/n02_train_03.png": "n02",
    }  # fmt: skip
    assert labeled.val is not None
    assert len(labeled.val) == 6
    assert len(labeled.unlabeled) == 9
    assert any("missing.png" in note for note in labeled.notes)


def test_a_class_without_a_label_to_learn_from_is_told(tmp_path: Path) -> None:
    folder = folders(tmp_path, {"bird": 5, "cat": 5, "dog": 5})
    listed = tmp_path / "list.txt"
    listed.write_text("\n".join(f"{name}/{i:02d}.png" for name in ("cat", "dog") for i in range(5)))
    labeled = choose_labels(open_data(str(folder), ImagesConfig()), None, str(listed), None, 0.2, 0)
    assert labeled.train.classes == ("bird", "cat", "dog")
    (note,) = [note for note in labeled.notes if "bird" in note]
    assert "1 test images count as wrong" in note


def test_a_fraction_of_class_folders_leaves_the_rest_unlabelled_and_the_test_images_alone(tmp_path: Path) -> None:
    data = open_data(str(folders(tmp_path, {"cat": 20, "dog": 20})), ImagesConfig())
    labeled = choose_labels(data, None, None, 0.1, 0.2, 0)
    assert labeled.val is not None
    assert (len(labeled.train), len(labeled.val), len(labeled.unlabeled)) == (4, 8, 28)
    parts = [ids_in(data.train, labeled.train), ids_in(data.train, labeled.val), labeled.unlabeled]
    assert sorted(np.concatenate(parts).tolist()) == list(range(40))


def test_no_labels_at_all_are_refused_with_both_ways_to_give_them(tmp_path: Path) -> None:
    with pytest.raises(CsmlError, match=r"class folders, or --labels FILE"):
        choose_labels(open_data(str(flat(tmp_path)), ImagesConfig()), None, None, None, 0.2, 0)


def test_what_a_run_saves_can_be_read_as_a_table(tmp_path: Path) -> None:
    from csml.data.labels import write_labels

    folder = flat(tmp_path)
    labeled = chosen(
        folder, json.dumps({"path": "00.png", "label": "a, b"}) + '\n{"path": "01.png", "label": "c"}', "l.jsonl"
    )
    write_labels(tmp_path / "saved.csv", labeled.train)
    again = choose_labels(open_data(str(folder), ImagesConfig()), str(tmp_path / "saved.csv"), None, None, 0.0, 0)
    assert named(again) == named(labeled) == {"00.png": "a, b", "01.png": "c"}
