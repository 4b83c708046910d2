"""Metadata of a run directory (the verb that made it, versions, commit, machine) and its results."""

import platform
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from csml.errors import CsmlError
from csml.files import read_object, write_json
from csml.release import VERSION
from csml.runs.directory import RESULTS, RunDirectory
from csml.runs.settings import read_settings

_PACKAGES = ("torch", "torchvision", "lightning-fabric", "numpy", "pillow")
_LEGACY_KEYS = {
    "framework": "pretrain",
    "max_entropy": "mine",
    "schedule.iterations": "detect",
    "head_lr_per_256": "finetune",
}
"""Settings that only one verb has → that verb."""


def write_metadata(run: RunDirectory, verb: str, extra: dict[str, Any]) -> None:
    """Write run.json: verb, time, versions and machine."""
    facts = {
        "verb": verb,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": sys.argv,
        "commit": commit(),
        "python": platform.python_version(),
        "machine": platform.platform(),
        "versions": {"csml": VERSION} | {package: version(package) for package in _PACKAGES},
        **extra,
    }
    write_json(run.facts, facts)


def read_metadata(root: Path) -> dict[str, Any]:
    """The content of run.json; empty if there is none."""
    path = RunDirectory(root).facts
    return read_object(path) if path.exists() else {}


def read_result(run: RunDirectory, name: str) -> dict[str, Any] | None:
    """The content of a result file, one of `RESULTS`; None if there is none."""
    path = run.result(name)
    if not path.exists():
        return None
    try:
        return read_object(path)
    except CsmlError as error:
        raise CsmlError(f"{error}; delete it and evaluate again") from error


def read_results(run: RunDirectory) -> dict[str, dict[str, Any]]:
    """The content of the result files that exist, by name: knn, linear, …"""
    return {name: result for name in RESULTS if (result := read_result(run, name)) is not None}


def verb_of(root: Path) -> str:
    """The verb that made a run: pretrain, supervised, finetune, mine or detect.

    Older runs, whose run.json has no verb (its "command" may be that of a demo or an ablation), are recognised by
    settings that only one verb has.
    """
    verb = read_metadata(root).get("verb")
    if verb is not None:
        return str(verb)
    settings = read_settings(root)
    return next((verb for key, verb in _LEGACY_KEYS.items() if key in settings), "supervised")


def commit() -> str | None:
    """The git commit that csml runs from, None if it is installed; "+" marks uncommitted changes."""
    here = Path(__file__).parent
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, timeout=10)
        dirty = subprocess.run(["git", "status", "--porcelain"], cwd=here, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return head.stdout.strip() + ("+" if dirty.stdout.strip() else "") if head.returncode == 0 else None
