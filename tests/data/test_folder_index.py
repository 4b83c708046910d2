"""The folder index: complete, ordered, cached, and never stale."""

import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from csml.data import folder_index as index_module
from csml.data.folder_index import index_folder


def touch(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def names(root: Path) -> list[str]:
    found = index_folder(root)
    return [found.name(i) for i in range(len(found))]


def test_all_images_below_the_root_sorted_by_path(tmp_path: Path) -> None:
    touch(tmp_path, "b/2.PNG", "a/x/1.jpg", "c.webp", "notes.txt", ".hidden.jpg", ".git/3.jpg", "b/1.jpeg")
    assert names(tmp_path) == ["a/x/1.jpg", "b/1.jpeg", "b/2.PNG", "c.webp"]


@given(st.sets(st.text(st.characters(exclude_characters="/\0", codec="utf-8"), min_size=1, max_size=12), max_size=20))
def test_any_file_name_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, stems: set[str]) -> None:
    root = tmp_path_factory.mktemp("names")
    files = {f"n{stem}.jpg" for stem in stems}
    for file in files:
        (root / file).touch()
    assert set(names(root)) == files


def test_second_opening_does_not_walk_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "a/1.jpg")
    assert names(tmp_path) == ["a/1.jpg"]
    monkeypatch.setattr(index_module, "_write_index", lambda *_: pytest.fail("walked again"))
    assert names(tmp_path) == ["a/1.jpg"]


@pytest.mark.parametrize("change", ["add", "remove", "rename", "new folder", "remove folder"])
def test_every_change_is_seen(tmp_path: Path, change: str) -> None:
    touch(tmp_path, "a/1.jpg", "b/1.jpg")
    names(tmp_path)
    if change == "add":
        touch(tmp_path, "a/2.jpg")
    elif change == "remove":
        (tmp_path / "a/1.jpg").unlink()
    elif change == "rename":
        (tmp_path / "a/1.jpg").rename(tmp_path / "a/9.jpg")
    elif change == "new folder":
        touch(tmp_path, "a/deep/er/3.jpg")
    else:
        (tmp_path / "b/1.jpg").unlink()
        (tmp_path / "b").rmdir()
    expected = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*.jpg"))
    assert names(tmp_path) == expected


def test_a_link_in_a_circle_ends(tmp_path: Path) -> None:
    touch(tmp_path, "a/1.jpg")
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    assert "a/1.jpg" in names(tmp_path)


def test_a_worker_gets_a_reference_not_a_copy(tmp_path: Path) -> None:
    touch(tmp_path, *(f"{i:05d}.jpg" for i in range(2000)))
    found = index_folder(tmp_path)
    packed = pickle.dumps(found)
    assert len(packed) < 1000
    assert pickle.loads(packed).name(1999) == "01999.jpg"
