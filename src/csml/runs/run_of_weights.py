"""From weights to the run directory they lie in, and to the files of what is measured with them."""

import re
from pathlib import Path

from csml.config import names_weights
from csml.runs.directory import RunDirectory


def result_file(weights: str, name: str) -> Path:
    """The result file of a verb that judges weights: in their run, beside their file, or ./knn-NAME.json of a name."""
    if names_weights(weights):
        return Path(f"{name}-{re.sub(r'[^A-Za-z0-9_.-]+', '-', weights)}.json")
    return directory_of(weights).result(name)


def directory_of(weights: str | Path) -> RunDirectory:
    """The run directory that `weights` names: itself, or the folder of a weight file."""
    path = Path(weights).expanduser()
    return RunDirectory(path if path.is_dir() else path.parent)
