"""Messages about paths that do not exist name the one that was probably meant."""

from pathlib import Path

import pytest

from conftest import csml, noise_photos
from csml.errors import did_you_mean, disk_problem


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for folder in ("photos", "runs/mine/index", ".hidden"):
        Path(folder).mkdir(parents=True)
    for file in ("labels.csv", "runs/mine/backbone.safetensors"):
        Path(file).write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("typed", "right"),
    [
        ("photso", "photos"),
        ("Photos", "photos"),
        ("runs/mien", "runs/mine"),
        ("runs/mien/backbone.safetensors", "runs/mine/backbone.safetensors"),
        ("runs/mien/nothing", "runs/mine"),
        ("rnus/mine", "runs/mine"),
        ("lables.csv", "labels.csv"),
        (".hiden", ".hidden"),
    ],
)
def test_the_most_similar_path_is_suggested(place: Path, typed: str, right: str) -> None:
    assert did_you_mean(typed, "give another") == f"; did you mean {right}?"
    assert did_you_mean(place / typed) == f"; did you mean {place / right}?"


@pytest.mark.parametrize("typed", ["xyz", "photos", "photos/a/b.jpg", "hidden", "labels.csv/x", "~nobody-here/x", "\0"])
def test_otherwise_the_message_says_what_to_give(place: Path, typed: str) -> None:
    assert did_you_mean(typed, "give another") == "; give another"
    assert did_you_mean(typed) == ""


def test_a_file_that_cannot_be_opened_is_treated_alike(place: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        Path("lables.csv").read_text()
    assert disk_problem(caught.value) == "No such file or directory; did you mean labels.csv?"


def test_commands_suggest_the_folder_the_run_and_the_table(place: Path) -> None:
    noise_photos(place / "photos", 2)
    (place / "runs/mine/config.yaml").write_text("")
    for words, problem in (
        (["pretrain", "--data", "photso"], f"data: there is no folder {place}/photso; did you mean {place}/photos?"),
        (["pretrain", "--resume", "runs/mien"], "it has no config.yaml; did you mean runs/mine?"),
        (["report", "runs/mien"], "it has no config.yaml; did you mean runs/mine?"),
        (["knn", "runs/mien"], "there are no weights at runs/mien; did you mean runs/mine?"),
        (["finetune", "random:nano", "--data", "photos", "--labels", "lables.csv"], "did you mean"),
        (["neighbors", "random:nano", "photos/0.png", "--data", "photos"], "photos/0.png is not there; did you mean"),
    ):
        done = csml(*words, cwd=place)
        assert done.returncode == 2 and problem in done.stderr, done.stderr
