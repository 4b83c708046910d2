"""Labels and tags given on the page, in one SQLite file: every change is a transaction that can be undone."""

import getpass
import hashlib
import logging
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from csml.data.tables import read_table, write_csv
from csml.errors import CsmlError, reason
from csml.explorer.background import DelayedWork

log = logging.getLogger("csml")

Kind = Literal["label", "tag"]

_PATIENCE_SECONDS = 10.0
"""How long a writer waits for another."""
_CSV_SECONDS = 3.0
"""Delay from a change to the CSV file, which with 100 000 labels is too large to write for every change."""
_MANY = 1000
"""From this many labels on, all are read at once instead of one after the other."""
_ABOUT_LIMIT = 500
_UNDONE, _FOR_GOOD = 1, 2
_TABLES = """
CREATE TABLE IF NOT EXISTS entries (
    kind TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (kind, name, value)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS actions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, who TEXT NOT NULL, about TEXT NOT NULL,
    undone INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS changes (
    action INTEGER NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, before TEXT, after TEXT);
CREATE INDEX IF NOT EXISTS changes_of_action ON changes (action);
CREATE TABLE IF NOT EXISTS words (
    id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, value TEXT NOT NULL, UNIQUE (kind, value));
CREATE TABLE IF NOT EXISTS unwritten (name TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS facts (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT OR IGNORE INTO facts VALUES ('version', '0');
"""
# entries: the current state. An image has at most one label and any number of tags; the name is its path in the data.
# changes: `before` and `after` are labels, or the tag that was removed or added; NULL stands for none.
# unwritten: names whose label has changed since the CSV was written.
# actions: `undone` is 0, _UNDONE, or _FOR_GOOD if another action followed.
# words: every label and tag ever used, in the order of first use, which determines its key and its colour.


@dataclass(frozen=True)
class Action:
    """One action of a user."""

    id: int
    at: str
    """ISO time in UTC"""
    who: str
    about: str
    undone: bool
    for_good: bool = False
    """undone and followed by another action, so that it cannot be redone"""
    names: tuple[str, ...] = ()
    """the images that it changed; only of an action that was just undone or redone"""


class Store:
    """The SQLite file, and a CSV file of its labels, which follows every change within seconds.

    Every call opens the file anew, so threads, tabs and processes may use it concurrently. Names with bytes that are
    not UTF-8 are preserved (surrogateescape).

    Args:
        file: the SQLite file; created if it is missing.
        csv_file: path and label of each labelled image, as `csml finetune --labels` reads it. Rows edited by hand are
            imported when the store is opened.
        csv_seconds: how long the CSV may lag behind.
    """

    def __init__(self, file: Path, csv_file: Path, csv_seconds: float = _CSV_SECONDS) -> None:
        self.file, self.csv_file = file, csv_file
        self._soon = DelayedWork(self._try_to_write, csv_seconds)
        file.parent.mkdir(parents=True, exist_ok=True)
        with self._connected() as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(_TABLES)
        self._take_over_csv()

    @property
    def version(self) -> int:
        """A number that increases with every change by any process."""
        with self._connected() as connection:
            return _version(connection)

    def labels(self) -> dict[str, str]:
        """Image name → label."""
        return dict(self._entries("label"))

    def tags(self) -> dict[str, list[str]]:
        """Image name → tags in alphabetical order."""
        found: dict[str, list[str]] = {}
        for name, value in self._entries("tag"):
            found.setdefault(name, []).append(value)
        return {name: sorted(values) for name, values in found.items()}

    def words(self, kind: Kind) -> list[str]:
        """Every label, or tag, ever used, in order of first use."""
        with self._connected() as connection:
            rows = connection.execute("SELECT value FROM words WHERE kind = ? ORDER BY id", (kind,))
            return [_text(value) for (value,) in rows]

    def history(self, most: int = 50) -> list[Action]:
        """The actions, the latest first."""
        with self._connected() as connection:
            rows = connection.execute(
                "SELECT id, at, who, about, undone FROM actions ORDER BY id DESC LIMIT ?", (most,)
            ).fetchall()
        return [
            Action(id, at, _text(who), _text(about), bool(undone), undone == _FOR_GOOD)
            for id, at, who, about, undone in rows
        ]

    def set_labels(self, labels: dict[str, str | None], about: str) -> int | None:
        """Set or remove (None) the label of each image; returns the action's id, or None if nothing changes."""
        with self._changing() as connection:
            before = _current(connection, "label") if len(labels) > _MANY else _labels_of(connection, labels)
            changes = [(name, before.get(name), label) for name, label in labels.items() if before.get(name) != label]
            return self._act(connection, "label", changes, about)

    def set_tag(self, names: Iterable[str], tag: str, on: bool, about: str) -> int | None:
        """Add or remove a tag; returns the action's id, or None if nothing changes."""
        with self._changing() as connection:
            rows = connection.execute("SELECT name FROM entries WHERE kind = 'tag' AND value = ?", (_bytes(tag),))
            tagged = {_text(name) for (name,) in rows}
            before, after = (None, tag) if on else (tag, None)
            changes = [(name, before, after) for name in names if (name in tagged) != on]
            return self._act(connection, "tag", changes, about)

    def undo(self) -> Action | None:
        """Undo the latest action that is not undone; None if there is none."""
        return self._turn("SELECT max(id) FROM actions WHERE NOT undone", undone=True)

    def redo(self) -> Action | None:
        """Redo the action that was undone last, unless another action followed."""
        latest = "SELECT coalesce(max(id), 0) FROM actions WHERE NOT undone"
        return self._turn(f"SELECT min(id) FROM actions WHERE undone = {_UNDONE} AND id > ({latest})", undone=False)

    def _turn(self, which: str, undone: bool) -> Action | None:
        with self._changing() as connection:
            (id,) = connection.execute(which).fetchone()
            if id is None:
                return None
            rows = connection.execute("SELECT kind, name, before, after FROM changes WHERE action = ?", (id,))
            changes = rows.fetchall()
            names = tuple(_text(name) for _, name, _, _ in changes)
            for kind, name, before, after in changes:
                old, new = (after, before) if undone else (before, after)
                _put(connection, kind, name, old, new)
            connection.execute("UPDATE actions SET undone = ? WHERE id = ?", (undone, id))
            _grow(connection)
            row = connection.execute("SELECT id, at, who, about FROM actions WHERE id = ?", (id,)).fetchone()
        return Action(row[0], row[1], _text(row[2]), _text(row[3]), undone, names=names)

    def _act(
        self, connection: sqlite3.Connection, kind: Kind, changes: list[tuple[str, str | None, str | None]], about: str
    ) -> int | None:
        if not changes:
            return None
        connection.execute("UPDATE actions SET undone = ? WHERE undone", (_FOR_GOOD,))  # they cannot be redone any more
        now, who = datetime.now(UTC).isoformat(timespec="seconds"), _user()
        cursor = connection.execute(
            "INSERT INTO actions (at, who, about) VALUES (?, ?, ?)", (now, _bytes(who), _bytes(about[:_ABOUT_LIMIT]))
        )
        for name, before, after in changes:
            old, new = (None if value is None else _bytes(value) for value in (before, after))
            _put(connection, kind, _bytes(name), old, new)
            connection.execute(
                "INSERT INTO changes VALUES (?, ?, ?, ?, ?)", (cursor.lastrowid, kind, _bytes(name), old, new)
            )
        for value in dict.fromkeys(after for _, _, after in changes if after is not None):
            connection.execute("INSERT OR IGNORE INTO words (kind, value) VALUES (?, ?)", (kind, _bytes(value)))
        _grow(connection)
        return cursor.lastrowid

    def write_labels(self) -> Path:
        """Write the CSV file now; returns its path."""
        try:
            # No other writer may come between reading the labels and writing the file.
            with self._transaction() as connection:
                if not connection.execute("SELECT EXISTS (SELECT 1 FROM unwritten)").fetchone()[0]:
                    return self.csv_file
                rows = _current(connection, "label")
                if rows:
                    write_csv(self.csv_file, [("path", "label"), *rows.items()])
                else:
                    self.csv_file.unlink(missing_ok=True)
                connection.execute("DELETE FROM unwritten")
                connection.execute("INSERT OR REPLACE INTO facts VALUES ('csv', ?)", (_digest(self.csv_file),))
        except (OSError, CsmlError) as error:
            raise CsmlError(f"{self.csv_file} cannot be written ({reason(error)}); no label is lost") from error
        return self.csv_file

    def save(self) -> None:
        """Like `write_labels`, but only logs a failure."""
        self._soon.now()

    def _try_to_write(self) -> None:
        try:
            self.write_labels()
        except CsmlError as error:
            log.warning("%s", error)

    def _take_over_csv(self) -> None:
        """Import labels from the CSV file, which an earlier version of csml wrote or a user edited.

        Labels that were not yet written to the CSV because of a crash are kept.
        """
        with self._connected() as connection:
            known = connection.execute("SELECT value FROM facts WHERE key = 'csv'").fetchone()
            unwritten = {_text(name) for (name,) in connection.execute("SELECT name FROM unwritten")}
        if self.csv_file.exists() and (known is None or known[0] != _digest(self.csv_file)):
            found = {name: label for _, name, label in read_table(self.csv_file)}
            labels: dict[str, str | None] = dict.fromkeys(self.labels().keys() - found.keys())
            labels.update(found)
            changed = {name: label for name, label in labels.items() if name not in unwritten}
            self.set_labels(changed, f"{len(found):,} labels read from {self.csv_file.name}")
        self.write_labels()

    def _entries(self, kind: Kind) -> list[tuple[str, str]]:
        with self._connected() as connection:
            rows = connection.execute("SELECT name, value FROM entries WHERE kind = ?", (kind,)).fetchall()
        return [(_text(name), _text(value)) for name, value in rows]

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.file, timeout=_PATIENCE_SECONDS, isolation_level=None)) as connection:
                yield connection
        except sqlite3.OperationalError as error:  # on a full disk even reading fails: it creates another file
            why = f"{reason(error)}; is the disk full or read-only, or the file locked?"
            raise CsmlError(f"{self.file} cannot be read or written ({why})") from error
        except sqlite3.Error as error:
            raise CsmlError(
                f"{self.file} cannot be used ({reason(error)}); move it away to begin without labels"
            ) from error

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction, with no other writer in between."""
        with self._connected() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                with suppress(sqlite3.Error):  # it may already be rolled back; the first error is the one to report
                    connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        """A transaction after which the CSV file is updated."""
        with self._transaction() as connection:
            yield connection
        self._soon.ask()


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT value FROM facts WHERE key = 'version'").fetchone()[0])


def _grow(connection: sqlite3.Connection) -> None:
    """Increase the version, at the end of every change."""
    connection.execute("UPDATE facts SET value = value + 1 WHERE key = 'version'")


def _labels_of(connection: sqlite3.Connection, names: Iterable[str]) -> dict[str, str]:
    found = {}
    for name in names:
        row = connection.execute("SELECT value FROM entries WHERE kind = 'label' AND name = ?", (_bytes(name),))
        if (value := row.fetchone()) is not None:
            found[name] = _text(value[0])
    return found


def _current(connection: sqlite3.Connection, kind: Kind) -> dict[str, str]:
    rows = connection.execute("SELECT name, value FROM entries WHERE kind = ? ORDER BY name", (kind,))
    return {_text(name): _text(value) for name, value in rows}


def _put(connection: sqlite3.Connection, kind: str, name: bytes, old: bytes | None, new: bytes | None) -> None:
    if kind == "label":
        connection.execute("INSERT OR IGNORE INTO unwritten VALUES (?)", (name,))
    if old is not None:
        connection.execute("DELETE FROM entries WHERE kind = ? AND name = ? AND value = ?", (kind, name, old))
    if new is not None:
        connection.execute("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", (kind, name, new))


def _bytes(text: str) -> bytes:
    """Names and values are stored as bytes, because SQLite's text is strict UTF-8 and file names are not."""
    return text.encode("utf-8", "surrogateescape")


def _text(stored: bytes | str) -> str:
    return stored.decode("utf-8", "surrogateescape") if isinstance(stored, bytes) else stored


def _digest(file: Path) -> str:
    return hashlib.blake2b(file.read_bytes(), digest_size=10).hexdigest() if file.exists() else ""


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container without a user name
        return "unknown"
