"""Columns of the page: a number or a name for each image, to colour and filter the map by."""

import csv
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from csml.data.image_names import Names
from csml.data.images import UNLABELED, Images
from csml.data.labels import ids_in
from csml.data.open import DataSplits
from csml.data.tables import PATH_COLUMNS, read_text
from csml.errors import CsmlError

_MOST_COLUMNS, _MOST_NAMES = 64, 10_000


@dataclass(frozen=True)
class Column:
    """One value for each of N images."""

    title: str
    values: np.ndarray
    """`(N,)`: float32 numbers, NaN if missing; or int32 indices into `names`, −1 if missing"""
    names: tuple[str, ...] | None
    """distinct names of a column of names; None for numbers"""


def own_columns(data: DataSplits, images: Images) -> list[Column]:
    """Columns from the data itself: class folders, and which images are held out for testing."""
    found = []
    if (images.labels != UNLABELED).any():
        found.append(Column("class", images.labels.astype(np.int32), images.classes))
    held = ids_in(images, data.val) if data.val is not None else np.empty(0, np.int64)
    if len(held):
        split = np.zeros(len(images), np.int32)
        split[held] = 1
        found.append(Column("split", split, ("train", "test")))
    return found


def read_columns(path: Path, images: Images) -> list[Column]:
    """The columns of a CSV file with a header, one of which holds paths; rows for other images are ignored."""
    rows = [row for row in _table(path) if any(cell.strip() for cell in row)]
    header = [cell.strip() for cell in rows[0]] if rows else []
    place = next((place for place, title in enumerate(header) if title.lower() in PATH_COLUMNS), None)
    if place is None:
        titles = ",".join(header)[:80]
        raise CsmlError(f"columns: {path} needs a header with a column {PATH_COLUMNS[0]}, found {titles!r}")
    if len(header) > _MOST_COLUMNS:
        raise CsmlError(f"columns: {path} has {len(header)} columns; {_MOST_COLUMNS} is the most")
    names = Names(images)
    cells: dict[int, list[str]] = {}
    for row in rows[1:]:
        id = names.find(row[place].strip()) if len(row) > place else None
        if id is not None:
            cells[id] = row
    if not cells:
        raise CsmlError(f"columns: no row of {path} names an image of the data")
    return [_column(title, at, cells, len(images)) for at, title in enumerate(header) if at != place]


def _table(path: Path) -> list[list[str]]:
    text = read_text(path, "columns")
    try:
        return list(csv.reader(io.StringIO(text, newline=""), delimiter="\t" if path.suffix.lower() == ".tsv" else ","))
    except csv.Error as error:
        raise CsmlError(f"columns: {path} cannot be read as CSV ({error})") from error


def _column(title: str, place: int, cells: dict[int, list[str]], count: int) -> Column:
    texts = {id: row[place].strip() for id, row in cells.items() if len(row) > place and row[place].strip()}
    try:
        numbers = np.full(count, np.nan, np.float32)
        for id, text in texts.items():
            numbers[id] = float(text)
        return Column(title, numbers, None)
    except ValueError:
        pass
    names = tuple(sorted(set(texts.values())))
    if len(names) > _MOST_NAMES:
        raise CsmlError(f"columns: {title} has {len(names):,} different values; {_MOST_NAMES:,} is the most")
    codes = {name: code for code, name in enumerate(names)}
    values = np.full(count, -1, np.int32)
    for id, text in texts.items():
        values[id] = codes[text]
    return Column(title, values, names)
