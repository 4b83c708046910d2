"""`csml.report`: one self-contained page about one run or several."""

import logging
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from csml.api.run import PathLike, Run, paths_of
from csml.api.settings import plain_config
from csml.config import ReportConfig
from csml.console import show_log
from csml.errors import CsmlError, disk_problem
from csml.extras import extra
from csml.files import atomic_write
from csml.reporting.runs import read_runs
from csml.runs.directory import RunDirectory
from csml.runs.locks import in_use

log = logging.getLogger("csml")


@show_log()
def report(
    runs: "Run | PathLike | Sequence[Run | PathLike]", *, config: PathLike | None = None, **settings: Any
) -> Path:
    """Write one self-contained page: results, training, a map of the images, neighbours, classes, views, detections.

    Args:
        runs: runs or run directories, or a directory that contains several.
        config: a YAML file of settings.
        settings: any setting of `csml report --help`, such as `output` and `figures`.

    Returns:
        The page, which opens in a browser.
    """
    made = report_config(config=config, **settings)
    with extra("report", "csml report"):
        from csml.reporting.charts import save_figures
        from csml.reporting.content import gather
        from csml.reporting.html import render

    names = [str(path) for path in paths_of(runs, "runs")]
    if not names:
        raise CsmlError("runs: an empty list; give at least one run directory")
    started = time.monotonic()
    found = [run.moved_to(made.data) for run in read_runs(names)]
    path = Path(made.output).expanduser() if made.output else _default_output(names)
    _require_places(path, made.figures)
    with ExitStack() as used:
        for run in found:
            used.enter_context(in_use(run.root))
        content = gather(found, made.points, made.tests, made.seed)
        try:
            with atomic_write(path) as temporary:
                temporary.write_text(render(content), "utf-8", errors="replace")
            if made.figures is not None:
                written = save_figures(content.charts(), Path(made.figures).expanduser())
                log.info("%d figures in %s", len(written), made.figures)
        except OSError as error:
            raise CsmlError(f"output: cannot write {error.filename or path} ({error.strerror})") from error
    log.info("%s in %.0f s", "1 run" if len(found) == 1 else f"{len(found)} runs", time.monotonic() - started)
    return path


def report_config(runs: Any = None, *, config: PathLike | None = None, **settings: Any) -> ReportConfig:
    """The settings that `report` would run with, checked; `runs` is ignored."""
    return plain_config(ReportConfig, settings, config)


def _require_places(path: Path, figures: str | None) -> None:
    """Raise a CsmlError if the page or its figures cannot be written, before the work, which takes a while."""
    _make_folder("output:", path.parent)
    if figures is not None:
        _make_folder("figures:", Path(figures).expanduser())
    if path.is_dir():
        raise CsmlError(f"output: {path} is a folder; give the name of a file")


def _make_folder(key: str, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CsmlError(f"{key} cannot make {folder} ({disk_problem(error)})") from error


def _default_output(names: list[str]) -> Path:
    first = Path(names[0]).expanduser()
    return RunDirectory(first if len(names) == 1 else first.absolute().parent).report
