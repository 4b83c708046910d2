"""The table that `csml predict` writes as it goes: CSV or a JSON object per line, to a file or standard output."""

import contextlib
import csv
import json
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from csml.data.tables import as_cell
from csml.errors import CsmlError, disk_problem

log = logging.getLogger("csml")

_STDOUT = "-"
_JSON = (".jsonl", ".json", ".ndjson")

Row = dict[str, Any]


def discard(row: Row) -> None:
    """Ignore a row: nothing is written."""


@contextlib.contextmanager
def open_table(output: str, columns: tuple[str, ...]) -> Iterator[Callable[[Row], Any]]:
    """A function that writes each row immediately, so that rows survive an interruption."""
    if output == _STDOUT:
        if sys.stdout is None:  # closed by the process that started csml
            raise CsmlError("output: there is no standard output; give --output FILE")
        yield _writer(sys.stdout, columns, as_json=False)
        return
    path = Path(output).expanduser()
    if path.suffix.lower() not in (*_JSON, ".csv"):
        raise CsmlError(f"output: a .csv, .jsonl or .json file, or - for standard output, not {path}")
    with _its_problems(path):
        file = path.open("x", newline="", encoding="utf-8", errors="surrogateescape")
    try:
        with _its_problems(path):
            write = _writer(file, columns, as_json=path.suffix.lower() in _JSON)

        def write_row(row: Row) -> None:
            with _its_problems(path):
                write(row)

        yield write_row
    finally:
        with _its_problems(path):
            file.close()
    log.info("written to %s", path)


@contextlib.contextmanager
def _its_problems(path: Path) -> Iterator[None]:
    """Report that the table cannot be written. Work between two rows has files, and problems, of its own."""
    try:
        yield
    except FileExistsError as error:
        raise CsmlError(f"output: {path} exists; choose another, or delete it") from error
    except OSError as error:
        raise CsmlError(f"output: cannot write {path} ({disk_problem(error)})") from error


def _cell(value: Any) -> Any:
    """A value as a CSV cell."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict | list):
        return json.dumps(value)
    if isinstance(value, float):
        return f"{value:.4f}"
    return as_cell(value) if isinstance(value, str) else value


def _writer(file: TextIO, columns: tuple[str, ...], as_json: bool) -> Callable[[Row], Any]:
    if as_json:
        return lambda row: file.write(json.dumps(row, ensure_ascii=False) + "\n")
    writer = csv.DictWriter(file, columns, restval="")
    header = True
    if file is not sys.stdout:
        writer.writeheader()
        header = False

    def write(row: Row) -> None:
        nonlocal header
        if header:  # with the first row, so that standard output stays empty if there is no image
            writer.writeheader()
            header = False
        writer.writerow({key: _cell(value) for key, value in row.items()})

    return write
