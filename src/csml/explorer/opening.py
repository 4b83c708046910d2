"""Opens a run for the page: its images, a network, labels, and further columns."""

import logging
from pathlib import Path

from csml.errors import CsmlError
from csml.explorer.columns import own_columns, read_columns
from csml.explorer.labels_in_files import names_in
from csml.explorer.network_view import open_view
from csml.explorer.store import Store
from csml.explorer.training import Training, show_tuned
from csml.explorer.workbench import Workbench
from csml.reporting.mapped_images import open_network_and_data
from csml.reporting.runs import FinishedRun

log = logging.getLogger("csml")


def open_workbench(run: FinishedRun, columns: str | None = None, seed: int = 0) -> tuple[Workbench, Training]:
    """Compute or reuse everything that the page shows of a run.

    Args:
        run: a run with a backbone.
        columns: a CSV file of further columns.
        seed: of the map.
    """
    opened = open_network_and_data(run)
    images = opened.data.train
    more = [] if columns is None else read_columns(Path(columns).expanduser(), images)
    view = open_view(run.files, opened, run.files, seed)
    store = Store(run.files.explore_state, run.files.explore_labels, name_of=names_in(images))
    workbench = Workbench(run, view, store, own_columns(opened.data, images) + more)
    if tuned := run.files.explore_tuned_runs():
        try:
            show_tuned(workbench, tuned[-1], opened, seed)
        except CsmlError as error:
            log.warning("%s cannot be used: %s", tuned[-1].root, error)
    return workbench, Training(workbench, opened, seed)
