"""Disturbs runs at random moments, again and again, and compares all they leave with undisturbed runs.

    python tests/soak.py --kills 200 --seed 0

A disturbance is SIGKILL or SIGTERM to the command, SIGKILL to a process that it has started (a data worker, or one of
two ranks), or a disk that is full from some file size on. It comes at any moment between the start of the process and
its end: importing, opening data, writing settings, weights, metrics or a checkpoint, resuming. After each, checkpoints
must load, and no progress may be lost. A run that has ended must have the same weights, metrics, neighbour sets, labels
and tables as the undisturbed one.
"""

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load_file

from csml.errors import CsmlError
from csml.runs.checkpoint import load_newest
from csml.runs.metrics import read_metrics

_COMMON = ["--hardware.threads", "1", "--checkpoint.every_steps", "2", "--monitor.tensorboard", "false"]
_PRETRAIN = [
    "--preset", "demo", "--images.synthetic_train", "150", "--images.synthetic_val", "50", "--epochs", "3",
    "--model.backbone", "nano", "--batch_size", "32", "--contrast.queue_length", "64", "--neighbors.warmup_epochs", "1",
    "--neighbors.refresh_every", "1", "--neighbors.keep", "1", "--monitor.knn_every", "1", "--monitor.baselines",
    "false", *_COMMON,
]  # fmt: skip
_SCENES = [
    "--scenes.synthetic_train", "12", "--scenes.synthetic_val", "4", "--scenes.synthetic_size", "64",
    "--schedule.iterations", "12", "--schedule.report_every", "4", "--batch_size", "2",
]  # fmt: skip
_PLAN = """
base: {preset: demo, images: {synthetic_train: 150, synthetic_val: 50}, epochs: 1, model: {backbone: nano},
       batch_size: 32, contrast: {queue_length: 64}, monitor: {knn_every: 0, tensorboard: false},
       hardware: {threads: 1}, checkpoint: {every_steps: 1}}
seeds: [0]
linear: {epochs: 2}
variations: {CsMl: {}, MoCo v2: {twin: moco-v2}}
"""
TIMES = {"seconds", "search_seconds", "images_per_second", "data_wait", "minutes", "started", "command", "commit"}
"""What two equal runs may differ in."""


@dataclass(frozen=True)
class Work:
    """One command: its words, and how to go on with it."""

    words: list[str]
    """BACKBONE, TUNED and PLAN stand for what was made before, OUT for the directory to write"""
    again: list[str] = field(default_factory=list)
    """to continue; without them, the same words find what is done"""


WORKS = {
    "pretrain": Work(["pretrain", *_PRETRAIN, "--out", "OUT"], ["pretrain", "--resume", "OUT"]),
    "pretrain in two processes": Work(
        ["pretrain", *_PRETRAIN, "--hardware.devices", "2", "--out", "OUT"], ["pretrain", "--resume", "OUT"]
    ),
    "finetune": Work(
        ["finetune", "BACKBONE", "--preset", "demo", "--per_class", "6", "--how", "paper", "--epochs", "4", *_COMMON,
         "--out", "OUT"],
        ["finetune", "--resume", "OUT"],
    ),
    "mine": Work(
        ["mine", "TUNED", "--epochs", "2", "--max_entropy", "2.5", *_COMMON, "--out", "OUT"],
        ["mine", "--resume", "OUT"],
    ),
    "linear": Work(
        ["linear", "BACKBONE", "--epochs", "30", "--baselines", "false", "--checkpoint.every_steps", "1", "--output",
         "OUT/linear.json"],
        ["linear", "BACKBONE", "--epochs", "30", "--baselines", "false", "--checkpoint.every_steps", "1", "--output",
         "OUT/linear.json", "--resume"],
    ),
    "detect": Work(
        ["detect", "BACKBONE", "--preset", "small-fpn", *_SCENES, *_COMMON, "--out", "OUT"],
        ["detect", "--resume", "OUT"],
    ),
    "ablate": Work(["ablate", "PLAN", "--out", "OUT"]),
}  # fmt: skip


class Soak:
    """Disturbs commands, counts what happened, and compares."""

    def __init__(self, place: Path, seed: int) -> None:
        self.place, self.dice = place, random.Random(seed)
        self.kills: Counter[str] = Counter()
        self.finished: Counter[str] = Counter()
        self.lengths: dict[str, float] = {}
        self.seen: set[str] = set()
        """last lines on which disturbed commands ended"""
        (place / "plan.yaml").write_text(_PLAN)

    def words(self, words: list[str], out: Path) -> list[str]:
        names = {"BACKBONE": self.place / "pretrain-undisturbed", "TUNED": self.place / "finetune-undisturbed"}
        names["PLAN"] = self.place / "plan.yaml"
        return [str(names[word]) if word in names else word.replace("OUT", str(out)) for word in words]

    def undisturbed(self, name: str) -> None:
        """Run a command once, to compare with."""
        began, out = time.monotonic(), self.place / f"{name}-undisturbed"
        out.mkdir(exist_ok=name == "linear")
        process = start(self.words(WORKS[name].words, out), self.place / f"{name}.txt")
        assert process.wait() == 0, f"{name} failed undisturbed; see {self.place / name}.txt"
        self.lengths[name] = time.monotonic() - began
        print(f"{name}: {self.lengths[name]:.0f} s undisturbed", flush=True)

    def disturbed(self, name: str, left: int) -> None:
        """Disturb a command up to `left` times until it ends, and compare what it leaves."""
        number = self.finished[name]
        out, log = self.place / f"{name}-{number}", self.place / f"{name}-{number}.txt"
        out.mkdir()
        work, before = WORKS[name], (-1, -1)
        words, limit, patience = self.words(work.words, out), left, 12
        while True:
            how = self.dice.choice(["SIGKILL", "SIGKILL", "SIGTERM", "dead child", "full disk"]) if limit else "nothing"
            if patience <= 0:
                how = "nothing"
            code = self._run(words, log, how, self.dice.uniform(0, 1.05) * self.lengths[name])
            if code == 0:
                break
            assert how != "nothing", f"{name} ended with {code}; see {log}"
            self.kills[how] += 1
            limit, patience = limit - 1, patience - 1
            self._check_line(log, how)
            now = progress(out)
            assert now >= before, f"{out} went back from {before} to {now}"
            before = now
            print(f"{sum(self.kills.values()):>4} {how}: {name} at epoch {now[0]}, step {now[1]}", flush=True)
            words = self.words(work.again or work.words, out)
            if work.again and not has_checkpoint(out):  # nothing to continue: the first command again
                words = [*self.words(work.words, out), *(["--overwrite"] if (out / "config.yaml").exists() else [])]
        compare(self.place / f"{name}-undisturbed", out)
        self.finished[name] += 1
        shutil.rmtree(out)

    def _run(self, words: list[str], log: Path, how: str, wait: float) -> int:
        """The exit code; 0 also if it ended before it could be disturbed."""
        size = int(10 ** self.dice.uniform(2, 6.5)) if how == "full disk" else None
        process = start(words, log, size)
        try:
            return process.wait(timeout=600 if how in ("nothing", "full disk") else wait)
        except subprocess.TimeoutExpired:
            assert how not in ("nothing", "full disk"), f"{words} hangs; see {log}"
        if how == "dead child":
            children = children_of(process.pid)
            if children:
                os.kill(self.dice.choice(children), signal.SIGKILL)
            else:
                process.kill()
        else:
            process.send_signal(signal.Signals[how])
        return process.wait(timeout=180)

    def _check_line(self, log: Path, how: str) -> None:
        """What a disturbed command says is one line of csml, never a traceback."""
        text = log.read_text(errors="replace")
        assert "Traceback" not in text and "made a mistake" not in text, f"see {log}"
        lines = text.strip().splitlines()
        if lines and how in ("dead child", "full disk"):
            self.seen.add(lines[-1][:150])


def start(words: list[str], log: Path, most_bytes: int | None = None) -> "subprocess.Popen[bytes]":
    """Start csml; files larger than `most_bytes` cannot be written, as on a full disk."""
    before = (
        None if most_bytes is None else partial(resource.setrlimit, resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
    )
    with log.open("wb") as file:
        return subprocess.Popen([sys.executable, "-m", "csml", *words], stdout=file, stderr=file, preexec_fn=before)


def children_of(parent: int) -> list[int]:
    """Processes that a process has started."""
    found = Path(f"/proc/{parent}/task").glob("*/children")
    return [int(child) for path in found if path.exists() for child in path.read_text().split()]


def checkpoint_folders(out: Path) -> list[Path]:
    return sorted(out.rglob("checkpoints"))


def has_checkpoint(out: Path) -> bool:
    return any(list(folder.glob("*.pt")) for folder in checkpoint_folders(out))


def progress(out: Path) -> tuple[int, int]:
    """Epoch and step of the newest checkpoint of a run, which must load; of a run with several, only that they load."""
    for folder in checkpoint_folders(out):
        try:
            load_newest(folder)
        except CsmlError as error:
            raise AssertionError(f"a checkpoint is lost: {error}") from error
    found = load_newest(out / "checkpoints")
    return (found[1]["epoch"], found[1]["step"]) if found else (-1, -1)


def compare(reference: Path, out: Path) -> None:
    """All that a run leaves, but what depends on the clock."""
    for one in sorted(reference.rglob("*")):
        two = out / one.relative_to(reference)
        if one.is_dir() or one.name in ("log.txt", ".lock", "config.yaml") or "checkpoints" in one.parts:
            continue
        assert two.exists(), f"{two} is missing"
        if one.suffix == ".safetensors":
            ours, theirs = load_file(one), load_file(two)
            assert ours.keys() == theirs.keys() and all(bool((ours[k] == theirs[k]).all()) for k in ours), (
                f"{two} differs"
            )
        elif one.suffix == ".jsonl":
            assert plain(read_metrics(one)) == plain(read_metrics(two)), f"{two} differs"
        elif one.suffix == ".npz":
            ours, theirs = np.load(one), np.load(two)
            assert all((ours[key] == theirs[key]).all() for key in ours.files), f"{two} differs"
        elif one.suffix == ".json":
            assert plain(json.loads(one.read_text())) == plain(json.loads(two.read_text())), f"{two} differs"
        elif one.suffix == ".csv" and one.name != "runs.csv":
            assert one.read_bytes() == two.read_bytes(), f"{two} differs"
    left = [path for path in out.rglob("*") if path.name.startswith(".") and path.name != ".lock"]
    assert not left or all(path.parent.name == "checkpoints" for path in left), f"left behind: {left}"


def plain(value: Any) -> Any:
    """Without what depends on the clock and the place."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items() if key not in TIMES and key not in ("out", "output")}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return "PATH" if isinstance(value, str) and "csml-soak-" in value else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", choices=list(WORKS), default=list(WORKS))
    asked = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="csml-soak-"))
    soak = Soak(place, asked.seed)
    needed = {"pretrain", *asked.only} | ({"finetune"} if "mine" in asked.only else set())
    for name in WORKS:
        if name in needed:
            soak.undisturbed(name)
    number = 0
    while (left := asked.kills - sum(soak.kills.values())) > 0:
        soak.disturbed(asked.only[number % len(asked.only)], left)
        number += 1
    for line in sorted(soak.seen):
        print("  ", line)
    print(
        f"{sum(soak.kills.values())} disturbances {dict(soak.kills)}, finished and equal: {dict(soak.finished)}, 0 lost"
    )
    shutil.rmtree(place)


if __name__ == "__main__":
    main()
