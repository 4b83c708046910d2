"""Every table with paths that a command writes can be given to another command, as labels and as data."""

import csv
import re
import shutil
from pathlib import Path

import pytest

import csml as library
import csml.synthetic as synthetic
from conftest import csml, noise_photos
from csml.config import ImagesConfig
from csml.data import open_data
from csml.data.labels import choose_labels
from csml.data.tables import read_table
from csml.errors import CsmlError

SMALL = ["--images.size", "32", "--images.workers", "0"]
NETWORK = "random:nano"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """photos/ with 12 images, and a classifier in tuned/, which has learnt from six of them."""
    root = tmp_path_factory.mktemp("place")
    noise_photos(root / "photos" / "2026", 12)
    (root / "known.csv").write_text("".join(f"{i:02d}.png,{'cat' if i % 2 else 'dog'}\n" for i in range(6)))
    words = ["--data", "photos", "--labels", "known.csv", "--how", "logistic", "--out", "tuned", *SMALL]
    done = csml("finetune", NETWORK, *words, cwd=root)
    assert done.returncode == 0, done.stderr
    return root


def paths_in(file: Path) -> list[str]:
    with file.open(newline="") as text:
        return [row["path"] for row in csv.DictReader(text)]


TABLES = {
    "select": ["select", NETWORK, "12", "--data", "photos", *SMALL],
    "select-of-a-run": ["select", "tuned", "12"],
    "predict": ["predict", "tuned", "photos"],
    "embed": ["embed", NETWORK, "--data", "photos", *SMALL],
    "embed-of-a-run": ["embed", "tuned"],
    "check": ["check", "photos", "--weights", NETWORK, "--similarity", "0", *SMALL],
}


@pytest.fixture(scope="module")
def tables(place: Path) -> dict[str, Path]:
    """What each command writes."""
    for name, words in TABLES.items():
        output = f"{name}.npy" if words[0] == "embed" else f"{name}.csv"
        done = csml(*words, "--output", output, cwd=place)
        assert done.returncode == 0, done.stderr
    return {name: place / f"{name}.csv" for name in TABLES}


@pytest.mark.parametrize("name", TABLES)
def test_paths_are_spelled_alike(name: str, place: Path, tables: dict[str, Path]) -> None:
    everything = {f"photos/2026/{i:02d}.png" for i in range(12)}
    found = set(paths_in(tables[name]))
    assert found == everything or (name == "check" and found and found < everything)


def test_neighbors_are_spelled_as_in_the_tables(place: Path) -> None:
    done = csml("neighbors", NETWORK, "photos/2026/03.png", "--data", "photos", "--k", "1", *SMALL, cwd=place)
    first = done.stdout.split()[1]
    assert first in {f"photos/2026/{i:02d}.png" for i in range(12)}


def test_an_image_is_not_its_own_neighbour_but_its_copy_is(place: Path, tmp_path: Path) -> None:
    (tmp_path / "copies").mkdir()
    for number in range(4):
        shutil.copy(place / f"photos/2026/{number:02d}.png", tmp_path / "copies")
    shutil.copy(place / "photos/2026/01.png", tmp_path / "copies/again.png")
    (tmp_path / "link").symlink_to("copies")
    words = ["--data", "copies", "--sheet", "alike.png", *SMALL]
    done = csml("neighbors", NETWORK, "link/01.png", "copies/02.png", "--k", "3", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    first, second = (part.split()[1::2] for part in re.split(r"(?m)^.*:$", done.stdout)[1:])
    assert len(first) == len(second) == 3 and first[0] == "copies/again.png"
    assert "copies/01.png" not in first and "copies/02.png" not in second
    done = csml("neighbors", NETWORK, "copies/01.png", "--k", "10", *words[:2], *SMALL, cwd=tmp_path)
    assert len(done.stdout.splitlines()) == 4


@pytest.mark.parametrize("name", TABLES)
def test_a_table_with_labels_filled_in_is_taken_as_labels_and_as_data(
    name: str, place: Path, tables: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [f"{path},{synthetic.CLASS_NAMES[n % 2]}" for n, path in enumerate(dict.fromkeys(paths_in(tables[name])))]
    beside, away = place / f"{name}-filled.csv", tmp_path / "filled.csv"
    for file in (beside, away):
        file.write_text("\n".join(["path,label", *rows, *(["photos/2026/11.png,"] if name == "select" else [])]))
    monkeypatch.chdir(place)
    for file in (beside, away):
        labeled = choose_labels(open_data("photos", ImagesConfig()), str(file), None, None, 0, 0)
        assert len(labeled.train) == len(rows)
        assert len(open_data(str(file), ImagesConfig()).train) == len(rows)
    monkeypatch.chdir(tmp_path)
    assert len(open_data(str(beside), ImagesConfig()).train) == len(rows)  # beside the photos, from anywhere


def test_what_select_has_written_is_data_whose_labels_are_those_filled_in(
    place: Path, tables: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tables["select"].read_text().replace("photos/2026/03.png,,", "photos/2026/03.png,cat,")
    file = place / "partly.csv"
    file.write_text(text.replace("photos/2026/04.png,,", "photos/2026/04.png,dog,"))
    assert [label for _, _, label in sorted(read_table(file), key=lambda row: row[1])] == ["cat", "dog"]
    monkeypatch.chdir(place)
    splits = open_data("partly.csv", ImagesConfig())
    assert len(splits.train) == 12 and splits.train.classes == ("cat", "dog")
    assert (splits.train.labels >= 0).sum() == 2
    assert len(library.select(NETWORK, 3, data="partly.csv", images={"size": 32, "workers": 0})) == 3


def test_a_table_whose_paths_lead_nowhere_says_what_to_do(place: Path, tmp_path: Path) -> None:
    file = tmp_path / "old.csv"
    file.write_text("path,label\n2026/03.png,cat\n")  # as select wrote it before
    with pytest.raises(CsmlError, match=r"relative to .* or to the current folder; .* --data FOLDER --labels"):
        open_data(str(file), ImagesConfig())
    labels = f"path,label\n2026/03.png,cat\n{place}/photos/2026/04.png,dog\n"
    file.write_text(labels)
    assert len(choose_labels(open_data(str(place / "photos"), ImagesConfig()), str(file), None, None, 0, 0).train) == 2
