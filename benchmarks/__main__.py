"""`python -m benchmarks [NAME …]`: run the measurements named, or all; print, save, and show them in the README."""

import json
import logging
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from benchmarks.figure import Figure, table
from csml.distributed.device import keep_freed_memory

HERE = Path(__file__).parent
LAST_RUN = HERE / "last_run.json"
README = HERE / "README.md"
BEGIN, END = "<!-- last run -->\n", "<!-- end of last run -->"
MEASUREMENTS = {
    "views": "views.views_per_core",
    "memory": "memory.loss_memory",
    "search": "search.against_faiss",
    "parts": "training.part_by_part",
    "lightly": "training.against_lightly",
    "step": "training.against_bare_networks",
    "levels": "training.levels",
    "share": "training.neighbors_share",
    "processes": "processes.two_against_one",
    "exchange": "processes.bytes_and_memory",
    "ivf": "search.against_ivf",
    "detection": "detection.against_torchvision",
    "imagenet-size": "search.imagenet_size",
}
"""Module and function of each; a module is imported when it is needed, because each needs other packages."""


def main(names: list[str]) -> int:
    unknown = sorted(set(names) - set(MEASUREMENTS))
    if unknown:
        print(f"no measurement is called {', '.join(unknown)}; there are {', '.join(MEASUREMENTS)}", file=sys.stderr)
        return 2
    logging.basicConfig(level=logging.INFO, format="  %(message)s")
    keep_freed_memory()  # as every run of ours does, for both sides
    runs = json.loads(LAST_RUN.read_text()) if LAST_RUN.exists() else {}
    for name in names or MEASUREMENTS:
        start = time.perf_counter()
        print(f"{name} …", flush=True)
        figures = _measurement(name)()
        minutes = (time.perf_counter() - start) / 60
        print(f"{table(figures)}\n({minutes:.1f} min)\n", flush=True)
        runs[name] = {
            "when": datetime.now(UTC).isoformat(timespec="minutes"),
            "minutes": minutes,
            "machine": _machine(),
            "figures": [asdict(figure) for figure in figures],
        }
        LAST_RUN.write_text(json.dumps(runs, indent=1) + "\n")
        _show(runs)
    return 0


def _measurement(name: str) -> Callable[[], list[Figure]]:
    module, function = MEASUREMENTS[name].split(".")
    found: Callable[[], list[Figure]] = getattr(import_module(f"benchmarks.{module}"), function)
    return found


def _show(runs: dict) -> None:
    """Put the last run of every measurement into the README."""
    known = [runs[name] for name in MEASUREMENTS if name in runs]
    figures = [Figure(**figure) for run in known for figure in run["figures"]]
    newest = max(known, key=lambda run: run["when"])
    facts = "; ".join(f"{key} {value}" for key, value in newest["machine"].items())
    text = f"{BEGIN}\n{newest['when'][:10]}: {facts}\n\n{table(figures)}\n\n{END}"
    before, rest = README.read_text().split(BEGIN)
    README.write_text(before + text + rest.split(END)[1])


def _machine() -> dict[str, object]:
    with open("/proc/cpuinfo") as file:
        lines = dict(line.split(":", 1) for line in file.read().split("\n\n")[0].splitlines() if ":" in line)
    facts = {key.strip(): value.strip() for key, value in lines.items()}
    flags = facts.get("flags", "").split()
    has = [name for name in ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16") if name in flags]
    return {
        "CPU": facts.get("model name", platform.processor()),
        "with": " ".join(has),
        "threads": torch.get_num_threads(),
        **{
            package: known
            for package in ("torch", "torchvision", "lightly", "faiss-cpu")
            if (known := _version(package))
        },
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
