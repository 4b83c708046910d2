"""Whether a run that was disturbed has left what an undisturbed one leaves: every file, and no other."""

import csv
import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from conftest import assert_same
from csml.runs.checkpoint import load_newest

CLOCK = {"seconds", "search_seconds", "images_per_second", "data_wait", "waited", "minutes", "started"}
CLOCK |= {"commit", "command"}
"""Names of what depends on the clock, on the state of the repository, or on who started the command."""
_UNLIKE = re.compile(r"(^|/)(log\.txt|plot\.png|[\w-]+\.svg|map-\w+\.npz)$")
"""Files that tell of the clock, have random names inside (SVG), or are drawn in the background (the map); they must
exist, but the content may be another."""
_LATE = re.compile(r"(^|/)map-\w+\.npz$")
"""The map exists if the page was served until it was finished."""


class Lost(Exception):
    """Something was lost; the message says what."""


def compare(undisturbed: Path, out: Path) -> None:
    """Raise Lost unless both directories have the same files with the same content, but for the clock."""
    ours, theirs = _files(out), _files(undisturbed)
    if missing := sorted(name for name in theirs.keys() - ours.keys() if not _LATE.search(name)):
        raise Lost(f"missing: {missing}")
    if left := sorted(name for name in ours.keys() - theirs.keys() if not _LATE.search(name)):
        raise Lost(f"left behind: {left}")
    for name, path in theirs.items():
        read = _reader(name) if name in ours else None
        if read is not None and read(path) != read(ours[name]):
            raise Lost(f"{name} differs")
    for folder in undisturbed.rglob("checkpoints"):
        one, two = load_newest(folder), load_newest(out / folder.relative_to(undisturbed))
        if one is None or two is None:
            raise Lost(f"{folder.name} is empty")
        try:
            assert_same(_plain(one[1]), _plain(two[1]))
        except AssertionError as error:
            raise Lost(f"the last checkpoint differs in {error}") from error


def _files(root: Path) -> dict[str, Path]:
    """Every file by its name in the directory. Checkpoints are compared by content: which are left is a matter of time.
    A file that was locked, or a log of the data base, is left by a killed process."""
    found = {str(path.relative_to(root)): path for path in sorted(root.rglob("*")) if path.is_file()}
    other = {".lock", ".used", "workbench.sqlite-wal", "workbench.sqlite-shm"}
    elsewhere = {"checkpoints", "tensorboard"}  # the names of event files have the time in them
    return {name: path for name, path in found.items() if path.name not in other and not elsewhere & {*path.parts}}


def _reader(name: str) -> Callable[[Path], Any] | None:
    if _UNLIKE.search(name):
        return None
    readers = {".json": _json, ".jsonl": _lines, ".sqlite": _entries, ".md": _markdown}
    if name.endswith("runs.csv"):
        return _rows
    return readers.get(Path(name).suffix, Path.read_bytes)


def _json(path: Path) -> Any:
    return _plain(json.loads(path.read_text()))


def _lines(path: Path) -> Any:
    return [_plain(json.loads(line)) for line in path.read_text().splitlines()]


def _rows(path: Path) -> Any:
    with path.open(newline="") as file:
        return [_plain(row) for row in csv.DictReader(file)]


def _markdown(path: Path) -> Any:
    """A table without its column of minutes."""
    rows = [line.split("|") for line in path.read_text().splitlines()]
    titles = next(row for row in rows if len(row) > 1)
    clock = [number for number, title in enumerate(titles) if title.strip() in CLOCK]
    return [[cell for number, cell in enumerate(row) if number not in clock] for row in rows]


def _entries(path: Path) -> Any:
    """Labels, tags and words of the workbench."""
    tables = ("name, value FROM entries", "value FROM words")
    with closing(sqlite3.connect(path)) as connection:
        return [sorted(connection.execute(f"SELECT kind, {table}")) for table in tables]


def _plain(value: Any) -> Any:
    """Without what depends on the clock."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if key not in CLOCK}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
