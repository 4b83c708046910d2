"""`make soak`, or `PYTHONPATH=tests python -m soak --kills 200 --seed 0 --minutes 5`: again goes on where it ended."""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

_INSIDE = "CSML_SOAK_HAS_DISK"
_DISK_MB = 64


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--place", type=Path, help="what is kept between two calls; by default a temporary folder")
    parser.add_argument("--minutes", type=float, help="end after the trial that is under way then")
    parser.add_argument("--only", nargs="*", help="names of works")
    asked = parser.parse_args()
    place = asked.place or Path(tempfile.gettempdir()) / f"csml-soak-{os.getuid()}-{asked.seed}"
    (place / "disk").mkdir(parents=True, exist_ok=True)
    (place / "printed").mkdir(exist_ok=True)
    os.environ |= {"CSML_CACHE": str(place / "printed"), "TORCH_CPP_LOG_LEVEL": "ERROR"}  # the latter as csml does
    can_fill = _own_disk(place / "disk")
    disk = "" if can_fill else "; without a disk of its own, so none is filled"
    print(f"seed {asked.seed}, in {place}{disk}", flush=True)
    return _soak(asked, place.resolve(), can_fill)


def _own_disk(disk: Path) -> bool:
    """Mount a small disk that only this process and its children see; it is gone when they are."""
    if _INSIDE not in os.environ:
        if subprocess.run(["unshare", "--map-root-user", "--mount", "true"], capture_output=True).returncode:
            return False
        again = ["unshare", "--map-root-user", "--mount", sys.executable, "-m", "soak", *sys.argv[1:]]
        os.execvpe(again[0], again, {**os.environ, _INSIDE: "1"})
    size = f"size={_DISK_MB}m"
    return subprocess.run(["mount", "-t", "tmpfs", "-o", size, "csml-soak", str(disk)]).returncode == 0


def _soak(asked: argparse.Namespace, place: Path, can_fill: bool) -> int:
    from soak.comparing import Lost
    from soak.labelling import NAME, label_undisturbed, run_labelling
    from soak.trials import Ground, Measured, Trial, run_trial, run_undisturbed
    from soak.works import NEEDS, WORKS, make_inputs

    began, ground, record = time.monotonic(), Ground(place, place / "disk", can_fill), _read(place)
    names = asked.only or [*WORKS, NAME]
    make_inputs(place)
    for name in sorted({*NEEDS.values(), *names}, key=[*NEEDS.values().__reversed__(), *WORKS, NAME].index):
        if name not in record["measured"]:
            found = label_undisturbed(ground) if name == NAME else run_undisturbed(ground, name)
            record["measured"][name] = asdict(found)
            _write(place, record)
            print(f"{name}: {found.seconds:.1f} s undisturbed, {found.changes} changes of files", flush=True)
    while (done := len(record["kills"])) < asked.kills:
        if asked.minutes is not None and time.monotonic() - began > 60 * asked.minutes:
            print(f"{done} of {asked.kills}; the same command goes on")
            return 0
        trial = Trial(names[record["trials"] % len(names)])
        dice, started = random.Random(f"{asked.seed}/{record['trials']}"), time.monotonic()
        random.seed(dice.random())
        outcome = "equal"
        try:
            measured = Measured(**record["measured"][trial.name])
            (run_labelling if trial.name == NAME else run_trial)(ground, trial, measured, dice)
        except Lost as loss:
            outcome = f"LOST: {loss}"
        except Exception:
            outcome = f"LOST: {traceback.format_exc()}"
        if outcome != "equal":
            record["lost"].append([record["trials"], trial.name, outcome])
            _keep(place, ground.disk, record["trials"])
        record["kills"] += [[trial.name, how, moment] for how, moment in trial.kills]
        record["lines"] = sorted({*record["lines"], *trial.lines})
        record["trials"] += 1
        record["finished"] += [trial.name] if outcome == "equal" else []
        _write(place, record)
        hows = ", ".join(f"{how} ({moment})" for how, moment in trial.kills) or "none"
        seconds = time.monotonic() - started
        print(f"{len(record['kills']):>4} {trial.name}: {hows}: {outcome}, {seconds:.0f} s", flush=True)
    _tell(record)
    return 1 if record["lost"] else 0


def _keep(place: Path, disk: Path, number: int) -> None:
    """What a loss looks like."""
    kept = place / "lost" / str(number)
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(disk, kept)
    if (place / "last.txt").exists():
        shutil.copyfile(place / "last.txt", kept / "last.txt")


def _tell(record: dict[str, Any]) -> None:
    for line in record["lines"]:
        print("  ", line[:200])
    names = list(dict.fromkeys(name for name, _, _ in record["kills"]))
    hows = sorted({how for _, how, _ in record["kills"]})
    counts = Counter((name, how) for name, how, _ in record["kills"])
    print("| | " + " | ".join(hows) + " | runs compared |\n|" + "---|" * (len(hows) + 2))
    for name in names:
        cells = [str(counts[name, how]) for how in hows] + [str(record["finished"].count(name))]
        print(f"| {name} | " + " | ".join(cells) + " |")
    print("moments:", dict(Counter(moment for _, _, moment in record["kills"]).most_common()))
    print(f"{len(record['kills'])} disturbances, {len(record['finished'])} runs equal, {len(record['lost'])} lost")
    for number, name, what in record["lost"]:
        print(f"trial {number}, {name}: {what}")


def _read(place: Path) -> dict[str, Any]:
    file = place / "record.json"
    if file.exists():
        return dict(json.loads(file.read_text()))
    return {"trials": 0, "kills": [], "finished": [], "lost": [], "lines": [], "measured": {}}


def _write(place: Path, record: dict[str, Any]) -> None:
    (place / "record.part").write_text(json.dumps(record))
    (place / "record.part").replace(place / "record.json")


if __name__ == "__main__":
    sys.exit(main())
