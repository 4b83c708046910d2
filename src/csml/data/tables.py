"""Text files that name images: CSV or JSON lines with a path and an optional label, and lists of paths."""

import codecs
import csv
import io
import json
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from csml.errors import CsmlError, disk_problem
from csml.files import atomic_write, read_file

log = logging.getLogger("csml")

TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json")
"""Suffixes of tables."""
_JSON = (".jsonl", ".ndjson", ".json")
_MOST_BYTES = 2**30
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet evaluates a cell that starts with one of these."""
PATH_COLUMNS = ("path", "file", "filename", "image", "name")
"""Titles of the column with the paths."""
_LABEL_COLUMNS = ("label", "class", "category")


def read_table(path: Path) -> list[tuple[int, str, str]]:
    """Line number, path and label of each row of a CSV file (with or without a header) or of JSON lines.

    A row without a label is an image that is not labelled yet, as written by `csml select`; it is left out.
    """
    rows = _rows(path, "labels", ("path", "label"))
    if not rows:
        raise CsmlError(f"labels: {path} names no image; each line must be path,label")
    for line, name, _ in rows:
        if not name:
            raise CsmlError(f"labels: {path}, line {line}: the path is empty")
    filled = [row for row in rows if row[2]]
    if not filled:
        raise CsmlError(f"labels: {path} has no label yet; fill in the column label")
    if len(filled) < len(rows):
        log.info("labels: %d of %d rows of %s have no label yet", len(rows) - len(filled), len(rows), path)
    return filled


def read_image_table(path: Path) -> list[tuple[str, str | None]]:
    """Path and optional label of each row of a table of images."""
    rows = _rows(path, "data", ("path",))
    for line, name, _ in rows:
        if not name:
            raise CsmlError(f"data: {path}, line {line}: the path is empty")
    return [(name, label or None) for _, name, label in rows]


def read_list(path: Path, key: str) -> list[str]:
    """The non-empty lines of a text file, stripped."""
    return [name for line in read_text(path, key).split("\n") if (name := line.strip(" \t\r\f\v"))]


def read_text(path: Path, key: str) -> str:
    """Read a text file in UTF-8 or a similar encoding; `key` is the setting that named it, for messages."""
    try:
        content = read_file(path, _MOST_BYTES)
    except OSError as error:
        raise CsmlError(f"{key}: {path} cannot be read ({disk_problem(error)})") from error
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise CsmlError(f"{key}: {path} is in UTF-16, as some spreadsheets write it; save it as CSV in UTF-8")
    return content.decode("utf-8-sig", errors="surrogateescape")


def write_csv(path: Path, rows: Iterable[Sequence[Any]]) -> None:
    """Write a table atomically; texts that a spreadsheet would evaluate are quoted, and `read_table` unquotes them."""
    with (
        atomic_write(path) as temporary,
        temporary.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file,
    ):
        csv.writer(file).writerows(cells(row) for row in rows)


def cells(row: Iterable[Any]) -> list[Any]:
    """A row of a CSV file, safe to open in a spreadsheet."""
    return [as_cell(value) if isinstance(value, str) else value for value in row]


def as_cell(text: str) -> str:
    """A text as a CSV cell that is safe in a spreadsheet: a leading apostrophe prevents its evaluation."""
    return f"'{text}" if _is_formula(text.lstrip("'")) else text


def without_quote(cell: str) -> str:
    """The original text of a cell written by `as_cell`."""
    return cell[1:] if cell.startswith("'") and _is_formula(cell.lstrip("'")) else cell


def _is_formula(text: str) -> bool:
    if not text.startswith(_FORMULA):
        return False
    try:
        float(text)
    except ValueError:
        return True
    return False


def _rows(path: Path, key: str, needed: tuple[str, ...]) -> list[tuple[int, str, str]]:
    """Line number, path and label of each row; the label is empty if it is missing and optional."""
    text = read_text(path, key)
    try:
        return list((_json_rows if path.suffix.lower() in _JSON else _csv_rows)(path, text, key, needed))
    except csv.Error as error:
        raise CsmlError(f"{key}: {path} cannot be read as CSV ({error})") from error


def _csv_rows(path: Path, text: str, key: str, needed: tuple[str, ...]) -> Iterator[tuple[int, str, str]]:
    lines = csv.reader(io.StringIO(text, newline=""), delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
    place: tuple[int, int | None] = (0, 1)
    for number, row in enumerate(lines, 1):
        if not any(cell.strip() for cell in row):
            continue
        cells = [without_quote(cell.strip()) for cell in row]
        if number == 1:
            lower = [cell.lower() for cell in cells]
            path_column, label_column = _column(lower, PATH_COLUMNS), _column(lower, _LABEL_COLUMNS)
            for column in (path_column, label_column):
                if column is not None and lower.count(lower[column]) > 1:
                    raise CsmlError(f"{key}: {path} has several columns {lower[column]!r}; leave one of them")
            if path_column is not None and (label_column is not None or "label" not in needed):
                place = (path_column, label_column)
                continue
            if "label" in needed:  # it would be easy to read another column
                _require_two_columns(path, key, cells, path_column, label_column)
        wanted = [column for column in (place[0], place[1] if "label" in needed else None) if column is not None]
        if len(cells) <= max(wanted):
            raise CsmlError(f"{key}: {path}, line {number}: expected {','.join(needed)}, found {','.join(row)!r}")
        label = cells[place[1]] if place[1] is not None and place[1] < len(cells) else ""
        yield number, cells[place[0]], label


def _require_two_columns(
    path: Path, key: str, cells: list[str], path_column: int | None, label_column: int | None
) -> None:
    """Raise unless the first line is a row of a table without a header, which has a path and a label."""
    if path_column is not None or label_column is not None:
        missing = "label" if label_column is None else "path"
        problem = f"the columns {', '.join(cells)}; none is called {missing}"
    elif len(cells) > 2:
        problem = f"{len(cells)} columns and no header; the first line must name them"
    else:
        return
    raise CsmlError(f"{key}: {path} has {problem}: give it the columns path and label")


def _column(header: list[str], names: tuple[str, ...]) -> int | None:
    return next((header.index(name) for name in names if name in header), None)


def _json_rows(path: Path, text: str, key: str, needed: tuple[str, ...]) -> Iterator[tuple[int, str, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            label = row["label"] if "label" in needed else row.get("label")
            if isinstance(label, list | dict) or isinstance(row["path"], list | dict | type(None)):
                raise ValueError("neither a text nor a number")
            name, text = str(row["path"]), "" if label is None else str(label)  # as an empty CSV cell
            os.fsencode(name + text)  # JSON may contain a lone surrogate, which is not valid text
            yield number, name, text
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            wanted = '{"path": "a.jpg", "label": "cat"}' if "label" in needed else '{"path": "a.jpg"}'
            raise CsmlError(f"{key}: {path}, line {number}: expected {wanted}, found {line[:60]!r}") from error
