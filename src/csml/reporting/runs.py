"""Finished runs: their settings, metrics and results, and which run each started from."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from csml.config import RANDOM
from csml.errors import CsmlError, did_you_mean
from csml.runs.directory import RunDirectory
from csml.runs.metadata import read_metadata, read_results, verb_of
from csml.runs.metrics import read_metrics
from csml.runs.settings import read_settings


@dataclass(frozen=True)
class FinishedRun:
    """One run directory."""

    root: Path
    name: str
    """display name: the shortest unique end of its path"""
    command: str
    """pretrain, supervised, finetune, mine or detect"""
    settings: dict[str, Any]
    """dotted keys"""
    metrics: list[dict[str, Any]]
    results: dict[str, dict[str, Any]]
    """content of the result files by name: knn, linear, …"""

    @property
    def files(self) -> RunDirectory:
        """The paths of its files."""
        return RunDirectory(self.root)

    def started_from(self) -> Path | None:
        """The run directory of the weights it started from; None if it started from scratch."""
        weights = self.settings.get("weights")
        if not weights or weights == RANDOM:
            return None
        path = Path(weights).expanduser().resolve()
        return path.parent if path.is_file() else path

    def omegas(self, most: int) -> list[tuple[int, np.ndarray]]:
        """Epoch and neighbour set Ω `(N, k)` of up to `most` searches, evenly spaced over the run, earliest first."""
        files = self.files.neighbor_files()
        places = np.linspace(0, max(0, len(files) - 1), min(most, len(files))).round().astype(int)
        found = []
        for file in (files[place] for place in np.unique(places)):
            with np.load(file) as stored:
                found.append((int(stored["epoch"]), stored["indices"]))
        return found

    def moved_to(self, data: str | None) -> "FinishedRun":
        """The same run with its images in another place."""
        return self if data is None else replace(self, settings={**self.settings, "data": data})

    def fingerprint(self) -> str | None:
        """The fingerprint of its training images."""
        return read_metadata(self.root).get("fingerprint")


def read_runs(paths: list[str]) -> list[FinishedRun]:
    """Read the runs at `paths`. A directory that contains runs, such as that of an ablation, stands for all of them."""
    roots: list[Path] = []
    for path in paths:
        root = Path(os.path.realpath(Path(path).expanduser()))  # Path.resolve raises for a link to itself
        if RunDirectory(root).config.exists():
            roots.append(root)
            continue
        below = (folder for pattern in ("*/", "*/*/") for folder in root.glob(pattern))
        found = {folder for folder in below if RunDirectory(folder).config.exists()}
        inside = sorted(folder for folder in found if folder.parent not in found)  # not the rounds of a mining run
        if not inside:
            name = RunDirectory(root).config.name
            raise CsmlError(f"{path} is not a run directory: it has no {name}{did_you_mean(path)}")
        roots += inside
    roots = list(dict.fromkeys(roots))
    return [_read(root, name) for root, name in zip(roots, _names(roots), strict=True)]


def _read(root: Path, name: str) -> FinishedRun:
    run = RunDirectory(root)
    metrics = read_metrics(run.metrics)
    for step in run.rounds():  # of mining: use the last one with metrics
        metrics = read_metrics(step.metrics) or metrics
    return FinishedRun(root, name, verb_of(root), read_settings(root), metrics, read_results(run))


def _names(roots: list[Path]) -> list[str]:
    """The shortest ends of the paths that are all different."""
    for length in range(1, max((len(root.parts) for root in roots), default=1) + 1):
        names = ["/".join(root.parts[-length:]) for root in roots]
        if len(set(names)) == len(names):
            return names
    return [str(root) for root in roots]
