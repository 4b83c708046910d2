"""Makes, opens and clears run directories. No run is overwritten by accident."""

import contextlib
import itertools
import logging
import shutil
from pathlib import Path

from csml.errors import CsmlError
from csml.runs.directory import RunDirectory
from csml.runs.locks import LOCK


def new_run(out: str | None, name: str, overwrite: bool | None = None) -> RunDirectory:
    """Create the run directory `out`, or the next free runs/NAME-001; with `overwrite`, one with a run in it will do.

    `overwrite` is None where the caller offers neither overwriting nor resuming.
    """
    try:
        if out is None:
            return RunDirectory(_next_free(Path("runs"), name))
        run = require_free(out, overwrite)
        run.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CsmlError(f"out: cannot make {error.filename or out} ({error.strerror})") from error
    return run


def require_free(out: str, overwrite: bool | None = None) -> RunDirectory:
    """The run directory `out`, which may be made; raise if another run, or anything else, is there."""
    run = RunDirectory(Path(out).expanduser())
    _require_utf8(run.root)
    if run.root.exists() and (not run.root.is_dir() or _content(run)):
        if not overwrite:
            ways = "" if overwrite is None else f", continue it with --resume {run.root}, or give --overwrite"
            raise CsmlError(f"out: {run.root} exists; choose another{ways}")
        if not run.config.exists():
            raise CsmlError(f"out: {run.root} is not a run of csml, so --overwrite will not delete it; choose another")
    return run


def open_run(path: str | Path) -> RunDirectory:
    """An existing run directory."""
    run = RunDirectory(Path(path).expanduser())
    if not run.config.exists():
        raise CsmlError(f"{path} is not a run directory: it has no {run.config.name}")
    return run


def clear(run: RunDirectory) -> None:
    """Delete the files of a run, whose lock the caller holds; the settings last, so that a kill leaves a run."""
    try:
        for path in sorted(_content(run), key=lambda path: path == run.config):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
    except OSError as error:
        raise CsmlError(f"out: cannot delete {error.filename} ({error.strerror})") from error


def log_to(file: Path) -> logging.Handler:
    """Copy the package's log to a file, with the time of each line."""
    handler = logging.FileHandler(file, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.getLogger("csml").addHandler(handler)
    return handler


def _require_utf8(root: Path) -> None:
    """safetensors cannot open files in other folders, so nobody could use the weights."""
    try:
        str(root.absolute()).encode("utf-8")
    except UnicodeEncodeError as error:
        raise CsmlError(f"out: the path {root} is not UTF-8; choose another") from error


def _content(run: RunDirectory) -> list[Path]:
    """All files and folders in it but the lock."""
    return [path for path in run.root.iterdir() if path.name != LOCK]


def _next_free(parent: Path, name: str) -> Path:
    for number in itertools.count(1):
        root = parent / f"{name}-{number:03d}"
        with contextlib.suppress(FileExistsError):  # another run may have taken it this moment
            root.mkdir(parents=True)
            return root
    raise AssertionError
