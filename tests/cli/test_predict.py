"""`csml predict` over files that cannot be read, some or all of them."""

from pathlib import Path

import pytest

from conftest import csml, noise_photos


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """photos/ with readable images, bad/ with none, and a classifier in tuned/."""
    root = tmp_path_factory.mktemp("place")
    noise_photos(root / "photos", 8)
    (root / "labels.csv").write_text("".join(f"{i:02d}.png,{'cat' if i % 2 else 'dog'}\n" for i in range(8)))
    words = ["--data", "photos", "--labels", "labels.csv", "--how", "logistic", "--out", "tuned"]
    done = csml("finetune", "random:nano", *words, "--images.size", "32", "--images.workers", "0", cwd=root)
    assert done.returncode == 0, done.stderr
    (root / "bad").mkdir()
    for name in ("a.jpg", "b.jpg"):
        (root / "bad" / name).write_bytes(b"broken")
    (root / "empty").mkdir()
    return root


@pytest.mark.parametrize(
    ("source", "rows", "problem"),
    [
        ("bad", 2, "sources: no image can be read, of 2; see the names above"),
        ("empty", 0, "sources: there is no image; give image files or folders with images"),
    ],
)
def test_nothing_that_can_be_predicted_is_an_error(place: Path, source: str, rows: int, problem: str) -> None:
    done = csml("predict", "tuned", source, cwd=place)
    assert done.returncode == 2 and done.stdout.count("cannot be read") == rows
    assert done.stderr.splitlines()[-1] == f"csml: error: {problem}"


@pytest.mark.parametrize("source", ["empty", "photso"])
def test_nothing_is_printed_before_the_first_row(place: Path, source: str) -> None:
    done = csml("predict", "tuned", source, cwd=place)
    assert done.returncode == 2 and done.stdout == ""


def test_images_that_cannot_be_read_among_others_are_counted(place: Path) -> None:
    done = csml("predict", "tuned", "bad", "photos/00.png", cwd=place)
    assert done.returncode == 0 and "3 images, 2 of them cannot be read" in done.stderr
    assert len(done.stdout.splitlines()) == 4


def test_after_a_mistyped_source_the_corrected_command_works(place: Path) -> None:
    done = csml("predict", "tuned", "photso", "--output", "p.csv", cwd=place)
    assert done.returncode == 2 and "photso is not there; did you mean photos?" in done.stderr
    assert csml("predict", "tuned", "empty", "--output", "p.csv", cwd=place).returncode == 2
    assert not (place / "p.csv").exists()
    done = csml("predict", "tuned", "photos", "--output", "p.csv", cwd=place)
    assert done.returncode == 0 and len((place / "p.csv").read_text().splitlines()) == 9


def test_a_table_is_not_replaced(place: Path) -> None:
    (place / "mine.csv").write_text("mine")
    done = csml("predict", "tuned", "photos", "--output", "mine.csv", cwd=place)
    assert done.returncode == 2 and "output: mine.csv exists; choose another, or delete it" in done.stderr
    assert (place / "mine.csv").read_text() == "mine"
