"""`csml report RUN …`: one page about one run or several."""

import logging
import time
from dataclasses import dataclass
from pathlib import Path

from csml.config.parsing import SettingsParser
from csml.errors import CsmlError

log = logging.getLogger("csml")

_SUMMARY = (
    "Write one self-contained page: results, training, a map of the images, neighbours, classes, views, detections."
)


@dataclass
class ReportConfig:
    """Settings of `csml report`."""

    output: str | None = None
    """The page; by default report.html in the run, or beside several runs."""
    figures: str | None = None
    """A folder for the same figures as PNG and SVG."""
    data: str | None = None
    """Where the images of the runs are now, if they were moved."""
    points: int = 5000
    """Images on a map, chosen by the seed where there are more. Ten thousand make a page of less than 15 MB."""
    tests: int = 2000
    """Test images that are looked at."""
    seed: int = 0
    """Of the choice of images and of the map."""


def run(arguments: list[str]) -> int:
    parser = SettingsParser("report", ReportConfig, _SUMMARY, "csml report RUN … [--output FILE] [--figures FOLDER]")
    parser.add_argument("runs", type=str, nargs="+", help="Run directories, or one that holds several.")
    settings = parser.settings(arguments)
    path = write_report(settings.runs, parser.build(settings, ReportConfig))
    log.info("the report: %s (%.1f MB); open it in a browser", path, path.stat().st_size / 1e6)
    return 0


def write_report(names: list[str], config: ReportConfig) -> Path:
    """Gather, render, write; returns where it is."""
    for key in ("points", "tests"):
        if getattr(config, key) < 1:
            raise CsmlError(f"{key}: at least 1, not {getattr(config, key)}")
    from csml.data.cache import atomic_write
    from csml.report.charts import save_figures
    from csml.report.content import gather
    from csml.report.html import render
    from csml.report.runs import read_runs

    started = time.monotonic()
    runs = [run.moved_to(config.data) for run in read_runs(names)]
    content = gather(runs, config.points, config.tests, config.seed)
    path = Path(config.output).expanduser() if config.output else _beside(names)
    try:
        with atomic_write(path) as temporary:
            temporary.write_text(render(content), "utf-8", errors="replace")
        if config.figures is not None:
            written = save_figures(content.charts(), Path(config.figures).expanduser())
            log.info("%d figures in %s", len(written), config.figures)
    except OSError as error:
        raise CsmlError(f"output: cannot write {error.filename or path} ({error.strerror})") from error
    log.info("%d runs in %.0f s", len(runs), time.monotonic() - started)
    return path


def _beside(names: list[str]) -> Path:
    first = Path(names[0]).expanduser()
    return (first if len(names) == 1 else first.absolute().parent) / "report.html"
