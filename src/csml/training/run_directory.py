"""The directory of one run: its tree, and the rule that nothing in it is ever overwritten unasked.

RUN/
  config.yaml            every setting, resolved
  run.json               versions, commit, command, machine, data
  log.txt                what the console showed
  metrics.jsonl          one line per epoch
  tensorboard/           the same as event files
  neighbors/epoch-0010.npz   Ω of every refresh: indices (N, k), similarities (N, k)
  checkpoints/           the newest few, for --resume
  backbone.safetensors   the network without its heads, rewritten each epoch
  knn.json, linear.json  what the protocols found
"""

import contextlib
import itertools
import json
import logging
import platform
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from csml.data.cache import atomic_write
from csml.errors import CsmlError

_PACKAGES = ("csml", "torch", "torchvision", "lightning-fabric", "numpy", "pillow")


@dataclass(frozen=True)
class RunDirectory:
    root: Path

    @property
    def config(self) -> Path:
        return self.root / "config.yaml"

    @property
    def facts(self) -> Path:
        return self.root / "run.json"

    @property
    def log(self) -> Path:
        return self.root / "log.txt"

    @property
    def metrics(self) -> Path:
        return self.root / "metrics.jsonl"

    @property
    def tensorboard(self) -> Path:
        return self.root / "tensorboard"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def backbone(self) -> Path:
        return self.root / "backbone.safetensors"

    def neighbors(self, epoch: int) -> Path:
        return self.root / "neighbors" / f"epoch-{epoch:04d}.npz"


def new_run(out: str | None, name: str, overwrite: bool | None = None) -> RunDirectory:
    """Make the run directory `out`, or the next free runs/NAME-001. `overwrite` None: there is no such option."""
    try:
        if out is None:
            return RunDirectory(_next_free(Path("runs"), name))
        root = Path(out).expanduser()
        if root.exists() and (not root.is_dir() or any(root.iterdir())):
            if not overwrite:
                ways = "" if overwrite is None else f", continue it with --resume {root}, or give --overwrite"
                raise CsmlError(f"out: {root} exists; choose another{ways}")
            if not (root / "config.yaml").exists():
                raise CsmlError(f"out: {root} is not a run of csml, so --overwrite will not delete it; choose another")
            shutil.rmtree(root)
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CsmlError(f"out: cannot make {error.filename or out} ({error.strerror})") from error
    return RunDirectory(root)


def open_run(path: str) -> RunDirectory:
    """An existing run."""
    run = RunDirectory(Path(path).expanduser())
    if not run.config.exists():
        raise CsmlError(f"{path} is not a run directory: it has no config.yaml")
    return run


def write_facts(run: RunDirectory, extra: dict[str, Any]) -> None:
    """Record what the run was made with."""
    facts = {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": sys.argv,
        "commit": commit(),
        "python": platform.python_version(),
        "machine": platform.platform(),
        "versions": {package: version(package) for package in _PACKAGES},
        **extra,
    }
    write_json(run.facts, facts)


def read_facts(root: Path) -> dict[str, Any]:
    """What `write_facts` has recorded of the run at `root`; empty where there is nothing."""
    path = RunDirectory(root).facts
    facts: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return facts


def write_json(path: Path, value: Any) -> None:
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2) + "\n")


def log_to(file: Path) -> logging.Handler:
    """Send the log of the package to a file as well, with the time of each line."""
    handler = logging.FileHandler(file, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.getLogger("csml").addHandler(handler)
    return handler


def _next_free(parent: Path, name: str) -> Path:
    for number in itertools.count(1):
        root = parent / f"{name}-{number:03d}"
        with contextlib.suppress(FileExistsError):  # taken, perhaps this moment by another run
            root.mkdir(parents=True)
            return root
    raise AssertionError


def commit() -> str | None:
    """The commit of the source tree csml runs from, if it is one; "+" marks uncommitted changes."""
    here = Path(__file__).parent
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, timeout=10)
        dirty = subprocess.run(["git", "status", "--porcelain"], cwd=here, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return head.stdout.strip() + ("+" if dirty.stdout.strip() else "") if head.returncode == 0 else None
