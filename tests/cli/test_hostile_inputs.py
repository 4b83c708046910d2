"""What 337 hostile inputs once broke: each is one line now, within seconds, or works. Bytes are in tests/fuzz."""

import errno
import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from conftest import csml, noise_photos
from csml import crash
from csml.cli import COMMANDS
from csml.config.build import kind_of, leaves
from csml.config.fields import Range
from csml.data.tables import as_cell, read_table, without_quote, write_csv
from csml.errors import CsmlError, machine_problem
from csml.files import atomic_write


def refused(*words: object, code: int = 2) -> str:
    """The one line on which a command ends."""
    signal.alarm(300)  # a hang ends the test
    done = csml(*map(str, words))
    signal.alarm(0)
    lines = done.stderr.strip().splitlines()
    assert done.returncode == code and lines and lines[-1].startswith("csml: error: "), done.stderr
    assert "Traceback" not in done.stderr
    return lines[-1]


@pytest.mark.parametrize("key", ["epochs", "batch_size", "neighbors.k", "contrast.queue_length", "seed", "images.size"])
@pytest.mark.parametrize("value", ["9" * 400, "9" * 5000, "-" + "9" * 400])
def test_absurd_numbers_are_outside_of_the_bounds(key: str, value: str) -> None:
    assert f"{key}: " in refused("pretrain", "--preset", "demo", "--print-config", f"--{key}", value)


def test_every_number_has_an_upper_bound() -> None:
    for command in COMMANDS.values():
        for key, leaf in leaves(command.schema).items():
            rule = getattr(leaf.rule, "range", leaf.rule)
            if kind_of(leaf.kind) in (int, float):
                assert isinstance(rule, Range), f"{command.name} {key}"
                assert (rule.high, rule.below, rule.limit) != (None, None, None), f"{command.name} {key}"


def test_a_pipe_or_a_device_is_not_waited_for(tmp_path: Path) -> None:
    for name in ("c.yaml", "w.safetensors", "w.pt", "labels.csv"):
        os.mkfifo(tmp_path / name)
    assert "not a regular file" in refused("pretrain", "--config", tmp_path / "c.yaml", "--print-config")
    assert "not a regular file" in refused("pretrain", "--config", "/dev/zero", "--print-config")
    for weights in ("w.safetensors", "w.pt"):
        assert "not a regular file" in refused("knn", tmp_path / weights, "--data", "synthetic")
    photos = tmp_path / "photos"
    noise_photos(photos, 4)
    os.mkfifo(photos / "pipe.jpg")
    os.symlink("/dev/zero", photos / "zero.png")
    os.symlink("itself.png", photos / "itself.png")
    words = ["embed", "random:nano", "--data", photos, "--images.size", "32", "--output", tmp_path / "f.npy"]
    assert "3 of 7 images cannot be read" in refused(*words, "--images.workers", "0")
    words = ["finetune", "random:nano", "--data", photos, "--labels", tmp_path / "labels.csv"]
    assert "not a regular file" in refused(*words)


TRAINS = [name for name, command in COMMANDS.items() if command.trains]
WRONG_PLACES = {
    **{f"{name} --out": ([name, "--out"], "out: ") for name in (*TRAINS, "demo")},
    "score --out": (["score", "missing", "--data", "missing", "--out"], "out: "),
    "scenes --sheet": (["scenes", "synthetic", "--sheet"], "sheet: "),
    "check --sheet": (["check", "synthetic", "--sheet"], "sheet: "),
    "pretrain --resume": (["pretrain", "--resume"], "is not a run directory"),
    "pretrain --data": (["pretrain", "--data"], "data: "),
    "report": (["report"], "is not a run directory"),
    "explore": (["explore"], "is not a run directory"),
    "ablate --out": (["ablate", "modules", "--scale", "demo", "--out"], "out: "),
}
STARTS = {"mine": "TUNED", "detect": "random", "finetune": "random:nano"}


@pytest.mark.parametrize(("words", "said"), WRONG_PLACES.values(), ids=WRONG_PLACES.keys())
@pytest.mark.parametrize("inside", ["", "run"])
def test_a_link_to_itself_is_told_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tuned: Path, words: list[str], said: str, inside: str
) -> None:
    """Drawing pictures and scenes once came first, and took minutes; the cache shows whether any were drawn."""
    link = tmp_path / "itself"
    link.symlink_to("itself")
    monkeypatch.setenv("CSML_CACHE", str(tmp_path / "cache"))
    start = [str(tuned) if STARTS[words[0]] == "TUNED" else STARTS[words[0]]] if words[0] in STARTS else []
    demo, scenes = ["--preset", "demo"], ["--preset", "small-fpn"]
    more = {"pretrain": demo, "supervised": demo, "detect": scenes, "finetune": ["--data", "synthetic"]}
    given = [] if words[-1] == "--resume" else more.get(words[0], [])
    assert said in refused(words[0], *start, *given, *words[1:], link / inside if inside else link)
    assert not list((tmp_path / "cache").rglob("*synthetic*"))


@pytest.fixture(scope="module")
def tuned(small_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier."""
    out = tmp_path_factory.mktemp("tuned") / "run"
    assert csml("finetune", str(small_run), "--per_class", "3", "--how", "logistic", "--out", str(out)).returncode == 0
    return out


def test_a_sheet_needs_the_name_of_a_picture(tmp_path: Path, small_run: Path) -> None:
    noise_photos(tmp_path / "photos", 2)
    words = ["neighbors", small_run, tmp_path / "photos" / "00.png", "--sheet"]
    assert "sheet: " in refused(*words, tmp_path / "sheet.txt")
    assert "sheet: " in refused(*words, tmp_path / "sheet")
    (tmp_path / "folder.png").mkdir()
    assert "is a folder" in refused("check", tmp_path / "photos", "--sheet", tmp_path / "folder.png")


def test_aliases_that_contain_themselves_or_grow_are_refused(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("images: &a {size: *a}\n")
    assert "a contains itself" in refused("pretrain", "--config", config, "--print-config")
    bomb = "a: &a [x, x]\n" + "".join(
        f"{b}: &{b} [*{a}, *{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    config.write_text(bomb)
    assert "more than 20 aliases" in refused("pretrain", "--config", config, "--print-config")
    assert "more than 20 aliases" in refused("knn", tmp_path)  # config.yaml of a run from elsewhere
    assert "more than 20 aliases" in refused("ablate", config)


def test_a_run_without_settings_asks_for_images(tmp_path: Path, small_run: Path) -> None:
    (tmp_path / "backbone.safetensors").write_bytes((small_run / "backbone.safetensors").read_bytes())
    few = ("--per_class", "3")
    for verb, weights, more in (("knn", tmp_path, ()), ("finetune", tmp_path, few), ("finetune", "random:nano", few)):
        # finetune once took the built-in pictures
        assert "does not say which images it is for; give --data FOLDER" in refused(verb, weights, *more)


@pytest.mark.parametrize(
    "facts",
    ["[]", "3", "null", '{"backbone": "tiny"}', '{"backbone": "no", "small_images": true}', "[" * 100_000, "9" * 5000,
     '{"backbone": "tiny", "small_images": true, "classes": "ab"}',
     '{"backbone": "tiny", "small_images": true, "channels": 1000000000}',
     '{"backbone": "tiny", "small_images": true, "detector": {"kind": "x"}}'],
)  # fmt: skip
def test_foreign_metadata_is_told(tmp_path: Path, facts: str) -> None:
    save_file({"conv1.weight": torch.zeros(4, 3, 3, 3)}, tmp_path / "w.safetensors", metadata={"csml": facts})
    noise_photos(tmp_path / "photos", 1)
    for words in (["knn", "--data", "synthetic"], ["export"], ["predict", tmp_path / "photos"]):
        assert str(tmp_path / "w.safetensors") in refused(words[0], tmp_path / "w.safetensors", *words[1:])


def test_empty_files_say_that_they_are(tmp_path: Path) -> None:
    (tmp_path / "w.pth").touch()
    (tmp_path / "w.safetensors").touch()
    for name in ("w.pth", "w.safetensors"):
        assert "the file is empty; copy or download it again" in refused("knn", tmp_path / name, "--data", "synthetic")
    (tmp_path / "c.yaml").touch()
    done = csml("pretrain", "--preset", "demo", "--config", str(tmp_path / "c.yaml"), "--epochs", "0")
    assert "c.yaml is empty, so it sets nothing" in done.stderr


def test_a_run_is_resumed_by_the_command_that_made_it(small_run: Path) -> None:
    assert f"was made by csml pretrain; continue it with csml pretrain --resume {small_run}" in refused(
        "finetune", "--resume", small_run
    )


def test_features_that_are_not_finite_are_told(tmp_path: Path, small_run: Path) -> None:
    weights = load_file(small_run / "backbone.safetensors")
    name = next(name for name in weights if name.endswith("bn1.weight"))
    weights[name] = torch.full_like(weights[name], float("nan"))
    from csml.weights import weight_facts

    facts = json.dumps(weight_facts(small_run))
    save_file(weights, tmp_path / "w.safetensors", metadata={"csml": facts})
    noise_photos(tmp_path / "photos", 3)
    words = ["embed", str(tmp_path / "w.safetensors"), "--data", str(tmp_path / "photos")]
    done = csml(*words, "--output", str(tmp_path / "f.npy"))
    assert done.returncode == 0
    assert "the features of 3 images are not finite, such as those of 00.png" in done.stderr
    assert np.isnan(np.load(tmp_path / "f.npy")).any()


@pytest.mark.parametrize("text", ["=1+1", "@SUM(A1)", "-cmd|'/c calc'!A0", "+b", "'=x", "''=x", "'-"])
def test_labels_like_formulas_are_quoted_for_spreadsheets_and_read_back(tmp_path: Path, text: str) -> None:
    assert as_cell(text).startswith("'") and without_quote(as_cell(text)) == text
    write_csv(tmp_path / "l.csv", [("path", "label"), (f"{text}.png", text)])
    assert (tmp_path / "l.csv").read_text().splitlines()[1].lstrip('"').startswith("'")
    assert read_table(tmp_path / "l.csv") == [(2, f"{text}.png", text)]


@pytest.mark.parametrize("text", ["cat", "-1", "+1", "-0.5", "'quoted'", "a=b", "1e-3", ""])
def test_other_labels_stay_as_they_are(text: str) -> None:
    assert as_cell(text) == text and without_quote(text) == text


def test_text_that_is_no_text_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text('out: "\\ud800"\n')
    assert "out: expected text" in refused("pretrain", "--preset", "demo", "--config", config, "--print-config")
    (tmp_path / "l.jsonl").write_text('{"path": "a", "label": "\\ud800"}\n')
    with pytest.raises(CsmlError, match="line 1: expected"):
        read_table(tmp_path / "l.jsonl")


def test_names_that_are_not_utf8_work(tmp_path: Path) -> None:
    photos = tmp_path / os.fsdecode(b"caf\xe9")
    noise_photos(photos / "a", 2)
    noise_photos(photos / os.fsdecode(b"\xff"), 2)
    out = tmp_path / "run"
    words = ["finetune", "random:nano", "--data", str(photos), "--images.size", "32", "--how", "logistic"]
    line = refused(*words, "--out", tmp_path / os.fsdecode(b"run\xfe"))  # safetensors could not open its weights
    assert "is not UTF-8; choose another" in line
    done = csml(*words, "--images.workers", "0", "--out", str(out))
    assert done.returncode == 0, done.stderr
    rows = tmp_path / "rows.csv"
    assert csml("predict", str(out), str(photos), "--output", str(rows), "--images.workers", "0").returncode == 0
    assert b"\xff/00.png" in rows.read_bytes()


@pytest.mark.parametrize(
    ("raised", "words"),
    [
        (OSError(errno.ENOSPC, "x", "F"), "F: the disk is full"),
        (OSError(errno.EROFS, "x", "F"), "F: the disk is read-only"),
        (OSError(errno.ELOOP, "x", "F"), "F: a link leads to itself"),
        (RuntimeError("Symlink loop from '/a'"), "a link leads to itself (Symlink loop from '/a')"),
        (MemoryError(), "there is not enough memory"),
        (EOFError("unexpected EOF"), "decodes images was killed"),
        (RuntimeError("DataLoader worker (pid 3) is killed by signal: Killed."), "decodes images was killed"),
    ],
)
def test_what_the_machine_reports_is_told_in_words(raised: Exception, words: str) -> None:
    assert words in str(machine_problem(raised))


def test_libraries_that_cannot_write_name_the_file_and_the_disk(tmp_path: Path) -> None:
    from safetensors import SafetensorError

    for raised in (
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
        RuntimeError("[enforce fail at inline_container.cc:815] . PytorchStreamWriter failed writing file data/0"),
        RuntimeError("basic_ios::clear: iostream error"),  # torch.save, found by the soak
        OSError(errno.ENOSPC, "No space left on device"),
        OSError("98304 requested and 3968 written"),  # numpy.save, found by the soak
    ):
        with pytest.raises(OSError) as found, atomic_write(tmp_path / "w"):
            raise raised
        assert machine_problem(found.value) == f"{tmp_path / 'w'}: the disk is full"
    assert not list(tmp_path.iterdir())


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("CSML_CACHE", str(tmp_path / "file" / "cache"))
    noise_photos(tmp_path / "photos", 2)
    line = refused("embed", "random:nano", "--data", tmp_path / "photos", "--output", tmp_path / "f.npy")
    assert "Not a directory" in line


def test_what_nobody_foresaw_is_one_line_with_a_report(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    def wrong(*_: object) -> None:
        raise ZeroDivisionError("secret\nof two lines")

    monkeypatch.setattr("csml.cli._run", wrong)
    line = refused("pretrain", "--epochs", "3", code=70)
    assert line.startswith("csml: error: internal error: ZeroDivisionError: secret; please report it with ")
    report = Path(line.rpartition(" ")[2])
    assert report.is_relative_to(cache)
    text = report.read_text()
    assert "Traceback" in text and "'--epochs' '3'" in text and f"torch {torch.__version__.split('+')[0]}" in text


def test_a_report_goes_elsewhere_if_the_cache_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("CSML_CACHE", str(tmp_path / "file"))
    path = Path(crash.crashed(ValueError("x"), ["knn"]).rpartition(" ")[2])
    assert "ValueError: x" in path.read_text()
    path.unlink()


def test_a_pattern_of_many_digits_or_braces_is_told() -> None:
    for pattern in ("x{0.." + "9" * 5000 + "}", "{" * 3000, "{a,b}" * 300, "{a," * 500 + "}" * 500):
        refused("pretrain", "--data", pattern, "--print-config")


def test_huge_pictures_are_told(tmp_path: Path) -> None:
    Image.new("1", (30_000, 30_000)).save(tmp_path / "huge.png")
    noise_photos(tmp_path, 1)
    words = ["embed", "random:nano", "--data", tmp_path, "--images.size", "32", "--images.workers", "0"]
    assert "1 of 2 images cannot be read: huge.png" in refused(*words, "--output", tmp_path / "f.npy")
