"""Folders, lists and outputs that once hung csml, broke it, or were understood wrongly without a word."""

import os
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from test_hostile_inputs import refused

import csml as library
from conftest import csml, noise_photos
from csml.cli import main
from csml.data.tables import read_table
from csml.errors import CsmlError, machine_problem
from csml.evaluation.few_labels import CrossValidated

YAML = "names: [a, b]\ntrain: images/train\nval: images/val\n"


def yolo_folder(root: Path) -> Path:
    for split in ("train", "val"):
        noise_photos(root / "images" / split, 1)
        (root / "labels" / split).mkdir(parents=True)
        (root / "labels" / split / "00.txt").write_text("0 .5 .5 .2 .2\n")
    (root / "data.yaml").write_text(YAML)
    return root


def scenes(root: Path, place: Path) -> str:
    """What is said about a folder; the sheet goes to `place`."""
    done = csml("scenes", str(root), "--sheet", str(place / "sheet.png"))
    assert done.returncode == 0, done.stderr
    return done.stderr.replace(str(root), "")


@pytest.mark.parametrize(
    ("yaml", "said"),
    [
        ("names: {0: a, x: b}\n", "expected numbers of classes, such as 0: cat"),
        ("names: 3\n", "expected a list such as"),
        ("names: cat\n", "expected a list such as"),
    ],
)
def test_odd_names_of_yolo_are_told(tmp_path: Path, yaml: str, said: str) -> None:
    (yolo_folder(tmp_path) / "data.yaml").write_text(yaml)
    assert said in refused("scenes", tmp_path)


def test_odd_places_of_yolo_are_passed_over(tmp_path: Path) -> None:
    (yolo_folder(tmp_path) / "data.yaml").write_text(
        "names: [a]\ntrain: [1, {}, null, images/train]\nval: images/val\n"
    )
    assert csml("scenes", ".", cwd=tmp_path).returncode == 0


def test_pipes_devices_and_loops_among_annotations_are_not_followed(tmp_path: Path) -> None:
    """Each of these was waited for without end; two links to their own folder are 2⁴⁰ folders."""
    root = yolo_folder(tmp_path / "yolo")
    for name in ("more.txt", "more.yaml", "a.json", "b.xml"):
        os.mkfifo(root / name)
    os.symlink("/dev/zero", root / "labels" / "train" / "zero.txt")
    for name in ("one", "two"):
        os.symlink(".", root / name)
        os.symlink("..", root / "images" / name)
    said = scenes(root, tmp_path)
    assert "train: 1 images, 1 objects of 2 classes" in said
    elsewhere = tmp_path / "linked"
    elsewhere.mkdir()
    for name in ("images", "labels", "data.yaml"):
        os.symlink(root / name, elsewhere / name)
    assert scenes(elsewhere, tmp_path) == said


def test_an_annotation_of_voc_may_be_a_pipe(tmp_path: Path) -> None:
    from scene_files import voc_folder, voc_object, voc_xml

    good = voc_xml("a", voc_object("cat", 5, 5, 20, 20))
    root = voc_folder(tmp_path, {"trainval": {"a": good, "b": good}, "test": {"c": good}})
    (root / "Annotations" / "b.xml").unlink()
    os.mkfifo(root / "Annotations" / "b.xml")
    assert "annotation missing, image skipped" in scenes(root, tmp_path)


def test_drawn_scenes_are_refused_before_they_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CSML_CACHE", str(tmp_path / "cache"))
    assert "coco: only images in files" in refused("scenes", "synthetic", "--coco", tmp_path / "coco")
    assert not (tmp_path / "cache").exists()


@pytest.fixture(scope="module")
def tuned(small_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tuned") / "run"
    assert csml("finetune", str(small_run), "--per_class", "3", "--how", "logistic", "--out", str(out)).returncode == 0
    return out


def test_sources_and_outputs_of_predict_are_checked(tmp_path: Path, tuned: Path) -> None:
    noise_photos(tmp_path, 1)
    (tmp_path / "00.png").rename(tmp_path / os.fsdecode(b"caf\xe9.png"))
    (tmp_path / "list.txt").write_bytes(b"# names that are not UTF-8\ncaf\xe9.png\n")
    assert csml("predict", str(tuned), str(tmp_path / "list.txt")).stdout.count("caf") == 1
    assert "output: a .csv, .jsonl or .json file" in refused(
        "predict", tuned, tmp_path / "list.txt", "--output", tmp_path / "rows.xls"
    )
    assert "sources: an empty name" in refused("predict", tuned, "")
    assert f"queries: {tmp_path} is not an image file" in refused("neighbors", tuned, tmp_path)


def test_predict_without_standard_output_is_told(
    tmp_path: Path, tuned: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    noise_photos(tmp_path, 1)
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    with pytest.raises(SystemExit):
        main(["predict", str(tuned), str(tmp_path)])
    assert "output: there is no standard output; give --output FILE" in capfd.readouterr().err


def test_a_thread_that_fails_prints_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """TensorBoard writes in one, and a full disk ends it."""
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    csml("--version")

    def fail(error: Exception) -> str:
        def work() -> None:
            raise error

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return capfd.readouterr().err

    assert fail(OSError(28, "No space left on device")) == ""
    line = fail(ZeroDivisionError("x"))
    assert line.startswith("csml: internal error: ZeroDivisionError: x; please report it with ")
    assert line.count("\n") == 1


def test_places_of_reports_and_ablations_are_checked_first(tmp_path: Path, small_run: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder.html").mkdir()
    for words, said in (
        (["--output", tmp_path / "file" / "x.html"], "output: cannot make"),
        (["--output", tmp_path / "folder.html"], "is a folder"),
        (["--figures", tmp_path / "file"], "figures: cannot make"),
    ):
        assert said in refused("report", small_run, *words)
    for key in ("out", "runs"):
        words = ["ablate", "modules", "--scale", "demo", "--out", tmp_path / "new", f"--{key}", tmp_path / "file"]
        assert f"{key}: {tmp_path / 'file'} is a file" in refused(*words)
    assert not (tmp_path / "new").exists()


def test_supervised_does_not_train_on_pictures_that_nobody_asked_for() -> None:
    assert "data: give the images" in refused("supervised")


def test_a_picture_is_not_weights(tmp_path: Path) -> None:
    noise_photos(tmp_path, 1)
    line = refused("knn", tmp_path / "00.png", "--data", "synthetic")
    assert "neither a .safetensors file nor a torch checkpoint" in line


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("l.csv", "path,label,Label\na,b,c\n", "several columns 'label'"),
        ("l.csv", "path,path,label\na,b,c\n", "several columns 'path'"),
        ("l.jsonl", '{"path": "a", "label": ["b"]}\n', "line 1: expected"),
        ("l.jsonl", '{"path": null, "label": "b"}\n', "line 1: expected"),
    ],
)
def test_labels_that_could_mean_two_things_are_refused(tmp_path: Path, name: str, content: str, said: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(CsmlError, match=said):
        read_table(tmp_path / name)


def test_null_is_no_class_and_utf16_is_told(tmp_path: Path) -> None:
    (tmp_path / "l.jsonl").write_text('{"path": "a", "label": null}\n{"path": "b", "label": 3}\n')
    assert read_table(tmp_path / "l.jsonl") == [(2, "b", "3")]  # as with an empty cell; once it was the class None
    (tmp_path / "l.csv").write_bytes("path,label\na,b\n".encode("utf-16"))
    with pytest.raises(CsmlError, match=r"UTF-16.*save it as CSV in UTF-8"):
        read_table(tmp_path / "l.csv")


def test_nobody_expects_more_than_everything() -> None:
    labels = torch.arange(3).repeat(3)
    tried = CrossValidated(
        "logistic", 9 * torch.eye(3)[labels][None], torch.ones(1, 9, dtype=torch.bool), labels, kept=0.5
    )
    assert tried.accuracy == 1 and tried.expected == 1  # once 1.02


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_names_that_no_file_can_have_are_told(name: str) -> None:
    with pytest.raises(ValueError) as found:
        os.stat(name)
    assert "no file can have" in str(machine_problem(found.value))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda run: library.predict(run, None), "sources: expected a path or a list of paths, got None"),
        (lambda run: library.predict(run, [3]), "sources: expected a path"),
        (lambda run: library.neighbors(run, 3), "queries: expected a path"),
        (lambda run: library.neighbors(run, [""]), "queries: an empty name"),
        (lambda run: library.report([]), "runs: an empty list"),
        (lambda run: library.report(3), "runs: expected a path"),
        (lambda run: library.tables([]), "folders: an empty list"),
        (lambda run: library.tables(3), "folders: expected a path"),
        (lambda run: library.pack(3), "folder: expected a path"),
        (lambda run: library.pretrain("synthetic", config=3), "config: expected the path of a YAML file, got 3"),
        (lambda run: library.select(run, 1.5), "n: a number of images from 1 on, not 1.5"),
        (lambda run: library.select(run, True), "n: a number of images from 1 on, not True"),
    ],
)
def test_arguments_of_a_wrong_type_are_one_line_in_python_too(
    small_run: Path, call: Callable[[Path], object], said: str
) -> None:
    with pytest.raises(CsmlError, match=re.escape(said)):
        call(small_run)
