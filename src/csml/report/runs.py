"""What run directories hold: settings, metrics, results; which run another one started from."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from csml.config.detection import RANDOM
from csml.config.run_settings import read_settings
from csml.errors import CsmlError
from csml.training.metrics import read_metrics
from csml.training.run_directory import read_facts

_RESULTS = ("knn", "linear", "supervised", "finetune", "mine", "detect")


@dataclass(frozen=True)
class FinishedRun:
    """One run directory."""

    root: Path
    name: str
    """what it is called in figures: as much of its path as tells the runs apart"""
    command: str
    """pretrain, supervised, finetune, mine or detect"""
    settings: dict[str, Any]
    """dotted keys"""
    metrics: list[dict[str, Any]]
    results: dict[str, dict[str, Any]]
    """content of the result files by name: knn, linear, …"""

    def started_from(self) -> Path | None:
        """The run whose weights it took up."""
        weights = self.settings.get("weights")
        if not weights or weights == RANDOM:
            return None
        path = Path(weights).expanduser().resolve()
        return path.parent if path.is_file() else path

    def omegas(self, most: int) -> list[tuple[int, np.ndarray]]:
        """Epoch and indices `(N, k)` of up to `most` searches, spread over the run, the earliest first."""
        files = sorted((self.root / "neighbors").glob("epoch-*.npz"))
        places = np.linspace(0, max(0, len(files) - 1), min(most, len(files))).round().astype(int)
        found = []
        for file in (files[place] for place in np.unique(places)):
            with np.load(file) as stored:
                found.append((int(stored["epoch"]), stored["indices"]))
        return found

    def moved_to(self, data: str | None) -> "FinishedRun":
        """The same run, its images elsewhere."""
        return self if data is None else replace(self, settings={**self.settings, "data": data})

    def fingerprint(self) -> str | None:
        """Of the images it learnt from."""
        return read_facts(self.root).get("fingerprint")


def read_runs(paths: list[str]) -> list[FinishedRun]:
    """The runs at `paths`; a directory that only holds runs (of a demo, of an ablation) stands for all of them."""
    roots: list[Path] = []
    for path in paths:
        root = Path(path).expanduser().resolve()
        if (root / "config.yaml").exists():
            roots.append(root)
            continue
        found = {file.parent for pattern in ("*", "*/*") for file in root.glob(f"{pattern}/config.yaml")}
        inside = sorted(folder for folder in found if folder.parent not in found)  # not the rounds of a mining run
        if not inside:
            raise CsmlError(f"{path} is not a run directory: it has no config.yaml")
        roots += inside
    roots = list(dict.fromkeys(roots))
    return [_read(root, name) for root, name in zip(roots, _names(roots), strict=True)]


def _read(root: Path, name: str) -> FinishedRun:
    settings = read_settings(root)
    results: dict[str, dict[str, Any]] = {}
    for kind in _RESULTS:
        file = root / f"{kind}.json"
        if file.exists():
            try:
                results[kind] = json.loads(file.read_text("utf-8"))
            except ValueError as error:
                raise CsmlError(f"{file} cannot be read ({error}); delete it and judge again") from error
    metrics = read_metrics(root / "metrics.jsonl")
    for file in sorted(root.glob("round-*/metrics.jsonl")):  # of mining: the last round
        metrics = read_metrics(file) or metrics
    return FinishedRun(root, name, _command(settings), settings, metrics, results)


def _command(settings: dict[str, Any]) -> str:
    """By the keys that only its settings have."""
    own = {
        "framework": "pretrain",
        "max_entropy": "mine",
        "schedule.iterations": "detect",
        "head_lr_per_256": "finetune",
    }
    return next((command for key, command in own.items() if key in settings), "supervised")


def _names(roots: list[Path]) -> list[str]:
    """The shortest ends of the paths that are all different."""
    for parts in range(1, max((len(root.parts) for root in roots), default=1) + 1):
        names = ["/".join(root.parts[-parts:]) for root in roots]
        if len(set(names)) == len(names):
            return names
    return [str(root) for root in roots]
