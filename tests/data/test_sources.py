"""Images as people have them: several folders, patterns, lists and tables."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from csml.config import ImagesConfig, join_sources
from csml.data import open_data
from csml.data.labels import choose_labels
from csml.data.open import DataSplits
from csml.data.tables import read_list
from csml.errors import CsmlError


def picture(path: Path, colour: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (12, 10), (colour, 0, 0)).save(path)


def opened(*sources: object, **settings: object) -> DataSplits:
    return open_data(join_sources(map(str, sources)), ImagesConfig(**settings))  # type: ignore[arg-type]


def names(data: DataSplits) -> list[str]:
    return [data.train.name(id) for id in range(len(data.train))]


def labels(data: DataSplits) -> list[str]:
    return [data.train.classes[label] if label >= 0 else "" for label in data.train.labels]


def test_several_folders_are_one_set_with_the_classes_of_all(tmp_path: Path) -> None:
    for folder, classes in (("one", ("cat", "dog")), ("two", ("bird", "cat"))):
        for name in classes:
            for i in range(5):
                picture(tmp_path / folder / name / f"{i}.png", colour=i)
    picture(tmp_path / "three/loose.png", colour=77)
    data = opened(tmp_path / "one", tmp_path / "two", tmp_path / "three")
    assert data.train.classes == ("bird", "cat", "dog")
    assert labels(data) == ["cat"] * 5 + ["dog"] * 5 + ["bird"] * 5 + ["cat"] * 5 + [""]
    assert names(data)[0] == f"{tmp_path}/one/cat/0.png"
    assert len(set(names(data))) == 21  # one/cat/0.png and two/cat/0.png are two images
    assert data.train.read(20).getpixel((0, 0)) == (77, 0, 0)
    assert data.labeled is not None and data.val is not None
    assert len(data.labeled) + len(data.val) == 20  # the image without a label trains, and neither judges nor is judged
    assert np.bincount(data.val.labels).tolist() == [1, 2, 1]
    crops, good = data.train.cut(np.array([20, 0]), [(lambda rows, sizes: box(sizes), 4)])
    assert good.all() and crops[0][:, 0].amax(dim=(1, 2)).tolist() == [77, 0]
    assert pickle.loads(pickle.dumps(data.train)).fingerprint() == data.train.fingerprint()


def box(sizes: object) -> object:
    from csml.pixels import center_boxes

    return center_boxes(sizes, 1.0)  # type: ignore[arg-type]


def test_a_table_of_labels_finds_the_images_of_several_folders(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        for i in range(3):
            picture(tmp_path / folder / f"{folder}-{i}.png")
    table = tmp_path / "labels.csv"
    rows = [f"{tmp_path}/one/one-0.png,a", "one-1.png,a", f"{tmp_path}/two/two-0.png,b", "two-2.png,b"]
    table.write_text("path,label\n" + "\n".join(rows))
    chosen = choose_labels(opened(tmp_path / "one", tmp_path / "two"), str(table), None, None, 0.0, 0)
    assert [chosen.train.name(id).rpartition("/")[2] for id in range(4)] == [
        "one-0.png", "one-1.png", "two-0.png", "two-2.png",
    ]  # fmt: skip


def test_train_and_val_of_several_folders(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        for path in ("train/a/1.png", "train/b/1.png", "test/b/1.png"):
            picture(tmp_path / folder / path)
    data = opened(tmp_path / "one", tmp_path / "two")
    assert data.val is not None
    assert (len(data.train), len(data.val), data.val.labels.tolist()) == (4, 2, [1, 1])
    assert "train/ is for training, test/ for testing" in data.notes


def test_what_is_not_used_is_said(tmp_path: Path) -> None:
    for part in ("train", "val", "test"):
        for name in ("a", "b"):
            picture(tmp_path / part / name / "1.png")
    assert "train/ is for training, val/ for testing; test/ not used" in opened(tmp_path).notes


def test_files_left_out_are_counted_by_suffix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from csml.data import decode, folder_index

    monkeypatch.setattr(folder_index, "image_suffixes", lambda: decode.EXTENSIONS)
    picture(tmp_path / "1.png")
    for i in range(10):
        (tmp_path / f"{i}.TXT").touch()
    for name in ("a.heic", "b.HEIC", "README"):
        (tmp_path / name).touch()
    line = "left out 13 files: 2 .heic (pip install 'csml-vision[heic]'), 10 .txt, 1 without a suffix"
    for _ in range(2):  # searched, and from the cache
        assert line in opened(tmp_path).notes


def test_a_pattern_of_files_has_the_labels_of_its_folders(tmp_path: Path) -> None:
    for path in ("cat/1.png", "cat/2.png", "dog/1.png", "dog/notes.txt", "dog/2.bmp"):
        picture(tmp_path / path) if not path.endswith("txt") else (tmp_path / path).touch()
    data = opened(f"{tmp_path}/*/*.png")
    assert names(data) == ["cat/1.png", "cat/2.png", "dog/1.png"]
    assert labels(data) == ["cat", "cat", "dog"]
    whole = opened(f"{tmp_path}/**")
    assert len(whole.train) == 4 and "left out 1 file: 1 .txt" in whole.notes


def test_a_pattern_of_folders_means_the_folders(tmp_path: Path) -> None:
    for year in (2023, 2024):
        picture(tmp_path / f"photos-{year}" / "a" / "1.png")
    data = opened(f"{tmp_path}/photos-{{2023..2024}}")
    assert names(data) == [f"{tmp_path}/photos-{year}/a/1.png" for year in (2023, 2024)]


def test_a_list_names_images_relative_to_its_folder(tmp_path: Path) -> None:
    for path in ("in/b.png", "in/a.png", "out.png"):
        picture(tmp_path / path)
    (tmp_path / "in/list.txt").write_text(f"b.png\n\n  a.png  \n../out.png\n{tmp_path}/out.png\ngone.png\nb.png\n")
    data = opened(tmp_path / "in/list.txt")
    assert names(data) == ["b.png", "a.png", "../out.png", f"{tmp_path}/out.png"]
    assert data.train.read(3).size == (12, 10)
    assert any("1 files in" in note and "do not exist: gone.png" in note for note in data.notes)
    assert any("1 lines in" in note and "repeat" in note for note in data.notes)


@given(st.lists(st.text(st.characters(exclude_characters="\n\r\0", codec="utf-8")).map(lambda s: s.strip(" \t\f\v"))))
def test_every_line_of_a_list_comes_back(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    file = tmp_path_factory.mktemp("lists") / "list.txt"
    file.write_bytes("\r\n".join(lines).encode())
    read = read_list(file, "data")
    wanted = [line for line in lines if line]
    if wanted and read != wanted:  # a mark at the start of the file is not part of the first name
        wanted[0] = wanted[0].removeprefix("\ufeff").strip(" \t\f\v")
    assert read == [line for line in wanted if line]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("t.csv", "id,filename,class\n7,a.png,cat\n8,b.png,dog\n9,c.png,\n"),
        ("t.csv", "a.png,cat\nb.png,dog\nc.png\n"),
        ("t.tsv", "path\tlabel\na.png\tcat\nb.png\tdog\nc.png\t\n"),
        ("t.jsonl", '{"path": "a.png", "label": "cat"}\n{"path": "b.png", "label": "dog"}\n{"path": "c.png"}\n'),
    ],
)
def test_a_table_gives_paths_and_labels(tmp_path: Path, file: str, text: str) -> None:
    for name in "abc":
        picture(tmp_path / f"{name}.png")
    (tmp_path / file).write_text(text)
    data = opened(tmp_path / file)
    assert names(data) == ["a.png", "b.png", "c.png"]
    assert labels(data) == ["cat", "dog", ""]
    assert opened(tmp_path / file, labels="none").train.classes == ()


@pytest.mark.parametrize("rows", ["a.png,\na.png,cat\nb.png,dog\n", "a.png,cat\na.png,\nb.png,dog\n"])
def test_a_path_with_and_without_a_label_has_it_in_either_order(tmp_path: Path, rows: str) -> None:
    for name in "ab":
        picture(tmp_path / f"{name}.png")
    (tmp_path / "t.csv").write_text(f"path,label\n{rows}")
    assert labels(opened(tmp_path / "t.csv")) == ["cat", "dog"]


def test_a_path_named_twice_in_two_ways_keeps_its_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture(tmp_path / "photos" / "a.png")
    picture(tmp_path / "photos" / "b.png")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lists").mkdir()
    here = tmp_path / "photos"
    rows = f"path,label\n{here}/a.png,cat\nphotos/a.png,\n{here}/b.png,dog\n"
    (tmp_path / "lists" / "t.csv").write_text(rows)
    assert labels(opened(tmp_path / "lists" / "t.csv")) == ["cat", "dog"]


def test_a_table_may_have_no_labels_and_then_folders_count(tmp_path: Path) -> None:
    for name in ("x/1.png", "y/1.png"):
        picture(tmp_path / name)
    (tmp_path / "t.csv").write_text("path\nx/1.png\ny/1.png\n")
    assert labels(opened(tmp_path / "t.csv")) == ["x", "y"]


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("t.txt", b"", "names no image"),
        ("t.txt", b"nowhere.png\n", "none of the 1 files in .* exists, such as nowhere.png; paths are relative to"),
        ("t.txt", b"a\0b.png\n", "zero bytes"),
        ("t.txt", b"\xfa\xfe.png\n", "none of the 1 files"),
        ("t.txt", b"\xff\xfe.png\n", "is in UTF-16"),
        ("t.csv", b"path,label\na.png,x\na.png,y\n", "a.png is 'y' and also 'x'"),
        ("t.csv", b"path,label\n,x\n", "line 2: the path is empty"),
        ("t.jsonl", b"[1]\n", 'line 1: expected {"path": "a.jpg"}'),
        ("t.jsonl", b"{broken\n", "line 1: expected"),
    ],
)
def test_a_list_that_is_wrong_is_one_line(tmp_path: Path, file: str, content: bytes, message: str) -> None:
    picture(tmp_path / "a.png")
    (tmp_path / file).write_bytes(content)
    with pytest.raises(CsmlError, match=message) as caught:
        opened(tmp_path / file)
    assert "\n" not in str(caught.value)


def test_names_that_are_not_text_are_read(tmp_path: Path) -> None:
    raw = os.fsencode(tmp_path) + b"/caf\xe9.png"
    picture(tmp_path / "a.png", colour=9)
    os.rename(tmp_path / "a.png", raw)
    (tmp_path / "list.txt").write_bytes(b"caf\xe9.png\n")
    for source in (tmp_path, tmp_path / "list.txt", f"{tmp_path}/*.png"):
        assert opened(source).train.read(0).getpixel((0, 0)) == (9, 0, 0)


def test_links_in_circles_and_to_nowhere_end_in_no_traceback(tmp_path: Path) -> None:
    picture(tmp_path / "a.png")
    (tmp_path / "self.png").symlink_to(tmp_path / "self.png")
    (tmp_path / "gone.png").symlink_to(tmp_path / "nothing")
    data = opened(tmp_path)
    assert names(data) == ["a.png", "gone.png", "self.png"]
    _, good = data.train.cut(np.arange(3), [(lambda rows, sizes: box(sizes), 4)])
    assert good.tolist() == [True, False, False]


def test_a_mixture_that_cannot_be_meant_is_refused(tmp_path: Path) -> None:
    picture(tmp_path / "a.png")
    (tmp_path / "b.tar").touch()
    with pytest.raises(CsmlError, match="give a pattern for each"):
        opened(f"{tmp_path}/*")
    with pytest.raises(CsmlError, match=r"give '.*/\*\.tar'"):
        (tmp_path / "tars").mkdir()
        (tmp_path / "tars/1.tar").touch()
        opened(tmp_path / "tars")
