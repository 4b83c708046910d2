"""Creates, opens and clears run directories, without overwriting runs by accident."""

import contextlib
import itertools
import logging
import shutil
from pathlib import Path

from csml.errors import CsmlError, did_you_mean, disk_problem
from csml.files import exists_or_creatable, is_leftover
from csml.runs.directory import RunDirectory
from csml.runs.locks import LOCK, USED


def new_run(out: str | None, name: str, overwrite: bool | None = None) -> RunDirectory:
    """Create the run directory `out`, or the next free runs/NAME-001; with `overwrite`, it may contain a run.

    `overwrite` is None if the caller offers neither overwriting nor resuming.
    """
    try:
        if out is None:
            return RunDirectory(_next_free(Path("runs"), name))
        require_free(out, overwrite)
        run = RunDirectory(Path(out).expanduser())
        run.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CsmlError(f"out: cannot make {error.filename or out} ({disk_problem(error)})") from error
    return run


def require_free(out: str | None, overwrite: bool | None = None) -> None:
    """Raise a CsmlError if `new_run` would refuse `out`, before any work is done."""
    if out is None:
        return
    run = RunDirectory(Path(out).expanduser())
    _require_utf8(run.root)
    try:
        taken = exists_or_creatable(run.root) and (not run.root.is_dir() or bool(_content(run)))
    except OSError as error:
        raise CsmlError(f"out: cannot make {error.filename or out} ({disk_problem(error)})") from error
    if taken and not overwrite:
        ways = "" if overwrite is None else f", continue it with --resume {run.root}, or give --overwrite"
        raise CsmlError(f"out: {run.root} exists; choose another{ways}")
    if taken and not run.config.exists():
        raise CsmlError(f"out: {run.root} is not a run of csml, so --overwrite will not delete it; choose another")


def open_run(path: str | Path) -> RunDirectory:
    """An existing run directory."""
    run = RunDirectory(Path(path).expanduser())
    if not run.config.exists():
        raise CsmlError(f"{path} is not a run directory: it has no {run.config.name}{did_you_mean(run.root)}")
    return run


def clear(run: RunDirectory) -> None:
    """Delete the files of a run, whose lock the caller holds; the settings last, so that a killed process leaves a
    run."""
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
    handler = _LogFile(file, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.getLogger("csml").addHandler(handler)
    return handler


class _LogFile(logging.FileHandler):
    """A log file that loses lines on a full disk instead of printing a traceback."""

    def handleError(self, record: logging.LogRecord) -> None: ...


def _require_utf8(root: Path) -> None:
    """Raise unless the path is UTF-8: safetensors could not open the weights otherwise."""
    try:
        str(root.absolute()).encode("utf-8")
    except UnicodeEncodeError as error:
        raise CsmlError(f"out: the path {root} is not UTF-8; choose another") from error


def _content(run: RunDirectory) -> list[Path]:
    """All files and folders in the directory, except locks and temporary files of killed processes."""
    return [path for path in run.root.iterdir() if path.name not in (LOCK, USED) and not is_leftover(path)]


def _next_free(parent: Path, name: str) -> Path:
    for number in itertools.count(1):
        root = parent / f"{name}-{number:03d}"
        with contextlib.suppress(FileExistsError):  # another run may have just taken it
            root.mkdir(parents=True)
            return root
    raise AssertionError
