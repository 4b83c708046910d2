"""Images have one spelling in all that csml writes, and are found by every spelling that people and csml have used."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from conftest import noise_photos
from csml.config import ImagesConfig
from csml.data import open_data
from csml.data.image_names import Names, path_from_here
from csml.data.images import ArrayImages, FolderImages, Images, source_of


def opened(data: str) -> Images:
    return open_data(data, ImagesConfig()).train


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with photos/, more/, a link and a list."""
    noise_photos(tmp_path / "elsewhere", 2)
    here = tmp_path / "here"
    noise_photos(here / "photos" / "old", 3)
    noise_photos(here / "more", 2)
    (here / "link").symlink_to(here / "photos")
    (here / "list").mkdir()
    lines = ["../photos/old/00.png", "./../more/01.png", str(tmp_path / "elsewhere" / "01.png")]
    (here / "list" / "some.txt").write_text("\n".join(lines))
    monkeypatch.chdir(here)
    return here


@pytest.mark.parametrize(
    ("data", "paths"),
    [
        ("photos", ["photos/old/00.png", "photos/old/01.png", "photos/old/02.png"]),
        ("./photos/old/", ["photos/old/00.png", "photos/old/01.png", "photos/old/02.png"]),
        ("link", ["link/old/00.png", "link/old/01.png", "link/old/02.png"]),
        ("photos/*/0[01].png", ["photos/old/00.png", "photos/old/01.png"]),
        ("list/some.txt", ["photos/old/00.png", "more/01.png", "ELSEWHERE/01.png"]),
        ("../elsewhere", ["ELSEWHERE/00.png", "ELSEWHERE/01.png"]),
        ("more,../elsewhere", ["more/00.png", "more/01.png", "ELSEWHERE/00.png", "ELSEWHERE/01.png"]),
    ],
)
def test_a_path_leads_to_the_file_and_finds_it_again(place: Path, data: str, paths: list[str]) -> None:
    images = opened(data)
    found = [path_from_here(images, id) for id in range(len(images))]
    assert found == [path.replace("ELSEWHERE", str(place.parent / "elsewhere")) for path in paths]
    names = Names(images)
    for id, path in enumerate(found):
        assert Path(path).is_file()
        old = images.name(id)  # the only spelling of csml 0.1
        assert names.find(path) == names.find(os.path.abspath(path)) == names.find(old) == id
    assert names.find("nowhere/00.png") is None


def test_absolute_data_of_a_run_is_spelled_from_the_current_folder(place: Path) -> None:
    assert path_from_here(opened(str(place / "photos")), 1) == "photos/old/01.png"


def test_a_path_is_found_from_another_folder(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = path_from_here(opened("photos"), 1)
    monkeypatch.chdir(place / "photos")
    assert Names(opened("../photos")).find(path) == 1


def test_a_linked_folder_is_found_under_both_names(place: Path) -> None:
    names = Names(opened("link"))
    assert names.find("link/old/01.png") == names.find("photos/old/01.png") == 1


def test_workers_know_the_spelling_too(place: Path) -> None:
    source = source_of(opened("link"))
    assert isinstance(source, FolderImages)
    assert pickle.loads(pickle.dumps(source.index)).given == place / "link"


def test_images_that_are_no_files_keep_their_names() -> None:
    images = ArrayImages(np.zeros((2, 8, 8, 3), np.uint8), np.array([-1, -1]), (), "grey")
    assert path_from_here(images, 1) == "grey/1" and Names(images).find("grey/1") == 1
