"""`make soak`: runs are killed at random times, again and again, until they are done; nothing may be lost.

Pre-training, fine-tuning and detection take turns. Every run is killed (SIGKILL) wherever it is, starting, in a step,
saving or testing, continued with --resume, and in the end compared with one that nobody disturbed.
"""

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from csml.runs.checkpoint import load_newest

_COMMON = ["--monitor.tensorboard", "false", "--checkpoint.every_steps", "1", "--checkpoint.keep", "2"]
_SCENES = ["--scenes.synthetic_train", "24", "--scenes.synthetic_val", "8", "--scenes.synthetic_size", "64"]
RUNS = {
    "pretrain": [
        "--preset", "demo", "--images.synthetic_train", "600", "--images.synthetic_val", "100", "--epochs", "4",
        "--contrast.queue_length", "128", "--neighbors.warmup_epochs", "1", "--neighbors.refresh_every", "1",
        "--monitor.knn_every", "2", *_COMMON,
    ],
    "finetune": ["BACKBONE", "--preset", "demo", "--fraction", "0.5", "--epochs", "12", *_COMMON],
    "detect": [
        "BACKBONE", "--preset", "small-fpn", *_SCENES, "--schedule.iterations", "40", "--schedule.report_every", "10",
        *_COMMON,
    ],
}  # fmt: skip
"""What is run, seconds long each; BACKBONE is the pre-trained one."""
RESULTS = {"pretrain": "backbone.safetensors", "finetune": "classifier.safetensors", "detect": "detector.safetensors"}


def start(command: str, words: list[str], log: Path) -> "subprocess.Popen[bytes]":
    with log.open("ab") as file:
        return subprocess.Popen([sys.executable, "-m", "csml", command, *words], stdout=file, stderr=file)


def progress(run: Path) -> tuple[int, int]:
    """Epoch and step of the newest checkpoint, which must be whole."""
    found = load_newest(run / "checkpoints")
    return (found[1]["epoch"], found[1]["step"]) if found else (-1, -1)


def check_equal(command: str, run: Path, reference: Path) -> None:
    """Weights, optimizer, queue, Ω and all else, to the last bit."""
    for name in (RESULTS[command],):
        assert (run / name).read_bytes() == (reference / name).read_bytes(), f"{run / name} differs"
    states = [load_newest(each / "checkpoints") for each in (run, reference)]
    assert states[0] is not None and states[1] is not None
    for key in ("method", "optimizer"):
        assert _same(states[0][1][key], states[1][1][key]), f"{key} of {run} differs"


def _same(one: object, two: object) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(two, torch.Tensor):
        return torch.equal(one, two)
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(_same(one[key], two[key]) for key in one)
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(_same(a, b) for a, b in zip(one, two, strict=True))
    return one == two


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    dice = random.Random(asked.seed)
    place = Path(tempfile.mkdtemp(prefix="csml-soak-"))
    references = {command: place / f"{command}-undisturbed" for command in RUNS}
    settings = {
        command: [str(references["pretrain"]) if word == "BACKBONE" else word for word in words]
        for command, words in RUNS.items()
    }
    lengths = {}
    for command, words in settings.items():
        began = time.monotonic()
        code = start(command, [*words, "--out", str(references[command])], place / "log.txt").wait()
        lengths[command] = time.monotonic() - began
        assert code == 0, f"{command} failed undisturbed; see {place / 'log.txt'}"
        print(f"{command}: {lengths[command]:.0f} s undisturbed", flush=True)
    kills = finished = resumed = 0
    number = 0
    while kills < asked.kills:
        command = list(RUNS)[number % len(RUNS)]
        run, log = place / f"{command}-{number}", place / f"{command}-{number}.txt"
        number += 1
        words, before, done = [*settings[command], "--out", str(run)], (-1, -1), False
        while not done:
            process = start(command, words, log)
            # The later half of an undisturbed run is where training is; the first is imports.
            wait = dice.uniform(0.3, 1.1) * lengths[command] if kills < asked.kills else 600
            try:
                code = process.wait(timeout=wait)
                assert code == 0, f"{command} ended with {code}; see {log}"
                done = True
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                kills += 1
                now = progress(run)
                assert now >= before, f"{run} went back from {before} to {now}"
                before = now
                if now == (-1, -1):  # killed before its first checkpoint: nothing to lose
                    shutil.rmtree(run, ignore_errors=True)
                    words = [*settings[command], "--out", str(run)]
                else:
                    words = ["--resume", str(run)]
                    resumed += 1
                print(f"kill {kills:>3} of {asked.kills}: {command} at epoch {now[0]}, step {now[1]}", flush=True)
        check_equal(command, run, references[command])
        finished += 1
        print(f"{command} is done, equal to the undisturbed run", flush=True)
    print(
        f"{kills} kills, {resumed} resumed from a checkpoint, {finished} runs finished, all equal to undisturbed ones"
    )
    shutil.rmtree(place)


if __name__ == "__main__":
    main()
