"""Finds the run directory of weights, and the files of results measured with them."""

import re
from pathlib import Path

from csml.config import is_weight_name
from csml.runs.directory import RunDirectory


def result_file(weights: str, name: str) -> Path:
    """The result file of a verb that evaluates weights: in their run, beside their file, or ./knn-NAME.json for a
    name."""
    if is_weight_name(weights):
        return Path(f"{name}-{re.sub(r'[^A-Za-z0-9_.-]+', '-', weights)}.json")
    return directory_of(weights).result(name)


def directory_of(weights: str | Path) -> RunDirectory:
    """The run directory of `weights`: the path itself, or the folder of a weight file."""
    path = Path(weights).expanduser()
    return RunDirectory(path if path.is_dir() else path.parent)
