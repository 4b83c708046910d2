"""Opens a run for the page: its images, a network, labels, and further columns."""

import logging
from pathlib import Path

from csml.errors import CsmlError
from csml.explorer.columns import own_columns, read_columns
from csml.explorer.labels_in_files import NameOf, names_in, read_labels
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
    name_of = names_in(images)
    store = Store(run.files.explore_state, run.files.explore_labels, name_of=name_of)
    start_with_labels_of(run, store, name_of)
    workbench = Workbench(run, view, store, own_columns(opened.data, images) + more)
    if tuned := run.files.explore_tuned_runs():
        try:
            show_tuned(workbench, tuned[-1], opened, seed)
        except CsmlError as error:
            log.warning("%s cannot be used: %s", tuned[-1].root, error)
    return workbench, Training(workbench, opened, seed)


def start_with_labels_of(run: FinishedRun, store: Store, name_of: NameOf) -> None:
    """Put the labels that a run of finetune was learnt from into a new store.

    A store with a history is not new: the user may have undone this very action.
    """
    if run.command != "finetune" or not run.files.labels.exists() or store.history(1) or store.labels():
        return
    try:
        found, _ = read_labels(run.files.labels, name_of)
    except CsmlError as error:
        log.warning("%s cannot be used: %s", run.files.labels, error)
        return
    what = "1 label" if len(found) == 1 else f"{len(found):,} labels"
    store.set_labels(dict(found), f"{what} this run was learnt from")
