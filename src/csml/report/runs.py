"""What run directories hold: settings, metrics, results; which run another one started from."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from csml.config.run_settings import read_settings
from csml.errors import CsmlError
from csml.training.metrics import read_metrics

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
        return Path(weights) if weights else None

    def omegas(self) -> list[tuple[int, np.ndarray]]:
        """Epoch and indices `(N, k)` of every search, the earliest first."""
        found = []
        for file in sorted((self.root / "neighbors").glob("epoch-*.npz")):
            with np.load(file) as stored:
                found.append((int(stored["epoch"]), stored["indices"]))
        return found


def read_runs(paths: list[str]) -> list[FinishedRun]:
    """The runs at `paths`; a directory that only holds runs (of a demo, of an ablation) stands for all of them."""
    roots: list[Path] = []
    for path in paths:
        root = Path(path).expanduser().absolute()
        if (root / "config.yaml").exists():
            roots.append(root)
            continue
        inside = sorted(file.parent for pattern in ("*", "*/*") for file in root.glob(f"{pattern}/config.yaml"))
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
    return FinishedRun(root, name, _command(settings), settings, read_metrics(root / "metrics.jsonl"), results)


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
