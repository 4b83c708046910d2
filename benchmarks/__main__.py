"""`python -m benchmarks [quick | NAME …]`: run the quick measurements, those named, or all; print, save, and show them
in the README, beside those of other kinds of machine."""

import json
import logging
import platform
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from benchmarks.figure import Figure, table
from csml.distributed.device import keep_freed_memory

HERE = Path(__file__).parent
RESULTS = HERE / "results"
"""One file for each kind of CPU: the last run of every measurement on it."""
README = HERE / "README.md"
BEGIN, END = "<!-- last run -->\n", "<!-- end of last run -->"
MEASUREMENTS = {
    "views": "views.views_per_core",
    "memory": "memory.loss_memory",
    "search": "search.against_faiss",
    "parts": "training.part_by_part",
    "lightly": "training.against_lightly",
    "step": "training.against_bare_networks",
    "beside": "beside.beside_a_busy_process",
    "folders": "folders.decoded_against_files",
    "levels": "training.levels",
    "share": "training.neighbors_share",
    "processes": "processes.two_against_one",
    "exchange": "processes.bytes_and_memory",
    "ivf": "search.against_ivf",
    "detection": "detection.against_torchvision",
    "imagenet-size": "search.imagenet_size",
}
"""Module and function of each; a module is imported when it is needed, because each needs other packages."""

QUICK = ("views", "memory", "parts", "beside", "folders", "exchange")
"""Ten minutes on two cores."""
_KINDS = {
    "amx_bf16": "amx",
    "avx512_bf16": "avx512-bf16",
    "avx512_vnni": "avx512-vnni",
    "avx512f": "avx512",
    "avx2": "avx2",
}
"""What makes the most difference, by the flag that shows it, best first."""


def main(names: list[str]) -> int:
    names = list(QUICK) if names == ["quick"] else names
    unknown = sorted(set(names) - set(MEASUREMENTS))
    if unknown:
        print(f"no measurement is called {', '.join(unknown)}; there are {', '.join(MEASUREMENTS)}", file=sys.stderr)
        return 2
    logging.basicConfig(level=logging.INFO, format="  %(message)s")
    keep_freed_memory()  # as every run of ours does, for both sides
    results = RESULTS / f"{_kind()}.json"
    runs = json.loads(results.read_text()) if results.exists() else {}
    for name in names or MEASUREMENTS:
        start = time.perf_counter()
        print(f"{name} …", flush=True)
        figures = _measurement(name)()
        minutes = (time.perf_counter() - start) / 60
        print(f"{table({_kind(): figures})}\n({minutes:.1f} min)\n", flush=True)
        runs[name] = {
            "when": datetime.now(UTC).isoformat(timespec="minutes"),
            "minutes": minutes,
            "machine": _machine(),
            "figures": [asdict(figure) for figure in figures],
        }
        results.write_text(json.dumps(runs, indent=1) + "\n")
        _show({path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))})
    return 0


def _measurement(name: str) -> Callable[[], list[Figure]]:
    module, function = MEASUREMENTS[name].split(".")
    found: Callable[[], list[Figure]] = getattr(import_module(f"benchmarks.{module}"), function)
    return found


def _show(results: dict[str, dict]) -> None:
    """Put the last run of every measurement on every kind of machine into the README."""
    columns, lines = {}, []
    for kind, runs in results.items():
        known = [runs[name] for name in MEASUREMENTS if name in runs]
        columns[kind] = [Figure(**figure) for run in known for figure in run["figures"]]
        newest = max(known, key=lambda run: run["when"])
        facts = "; ".join(f"{key} {value}" for key, value in newest["machine"].items())
        lines.append(f"- {kind}, {newest['when'][:10]}: {facts}")
    listed = "\n".join(lines)
    text = f"{BEGIN}\n{listed}\n\n{table(columns)}\n\n{END}"
    before, rest = README.read_text().split(BEGIN)
    README.write_text(before + text + rest.split(END)[1])


def _kind() -> str:
    """The kind of CPU: machines of one kind differ little in ratios."""
    has = str(_machine()["with"]).split()
    return next((kind for flag, kind in _KINDS.items() if flag in has), "other")


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
        **{package: version(package) for package in ("torch", "torchvision", "lightly", "faiss-cpu") if _has(package)},
    }


def _has(package: str) -> bool:
    with suppress(PackageNotFoundError):
        return bool(version(package))
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
