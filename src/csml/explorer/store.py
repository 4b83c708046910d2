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

from csml.data.tables import write_csv
from csml.errors import CsmlError, reason
from csml.explorer.background import DelayedWork
from csml.explorer.labels_in_files import NameOf, read_labels
from csml.explorer.store_tables import (
    FOR_GOOD,
    TABLES,
    UNDONE,
    Kind,
    as_bytes,
    as_text,
    current,
    increase_version,
    labels_of,
    put,
    version_of,
)

log = logging.getLogger("csml")

_PATIENCE_SECONDS = 10.0
"""How long a writer waits for another."""
_CSV_SECONDS = 3.0
"""Delay from a change to the CSV file, which with 100 000 labels is too large to write for every change."""
_MANY = 1000
"""From this many labels on, all are read at once instead of one after the other."""
_ABOUT_LIMIT = 500


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
        name_of: finds the image that a row of the CSV means; by default every path is a name.
    """

    def __init__(
        self, file: Path, csv_file: Path, csv_seconds: float = _CSV_SECONDS, name_of: NameOf = lambda path: path
    ) -> None:
        self.file, self.csv_file = file, csv_file
        self._soon = DelayedWork(self._try_to_write, csv_seconds)
        file.parent.mkdir(parents=True, exist_ok=True)
        with self._connected() as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(TABLES)
        self._take_over_csv(name_of)

    @property
    def version(self) -> int:
        """A number that increases with every change by any process."""
        with self._connected() as connection:
            return version_of(connection)

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
            return [as_text(value) for (value,) in rows]

    def history(self, most: int = 50) -> list[Action]:
        """The actions, the latest first."""
        with self._connected() as connection:
            rows = connection.execute(
                "SELECT id, at, who, about, undone FROM actions ORDER BY id DESC LIMIT ?", (most,)
            ).fetchall()
        return [
            Action(id, at, as_text(who), as_text(about), bool(undone), undone == FOR_GOOD)
            for id, at, who, about, undone in rows
        ]

    def set_labels(self, labels: dict[str, str | None], about: str) -> int | None:
        """Set or remove (None) the label of each image; returns the action's id, or None if nothing changes."""
        with self._changing() as connection:
            before = current(connection, "label") if len(labels) > _MANY else labels_of(connection, labels)
            changes = [(name, before.get(name), label) for name, label in labels.items() if before.get(name) != label]
            return self._act(connection, "label", changes, about)

    def set_tag(self, names: Iterable[str], tag: str, on: bool, about: str) -> int | None:
        """Add or remove a tag; returns the action's id, or None if nothing changes."""
        with self._changing() as connection:
            rows = connection.execute("SELECT name FROM entries WHERE kind = 'tag' AND value = ?", (as_bytes(tag),))
            tagged = {as_text(name) for (name,) in rows}
            before, after = (None, tag) if on else (tag, None)
            changes = [(name, before, after) for name in names if (name in tagged) != on]
            return self._act(connection, "tag", changes, about)

    def undo(self) -> Action | None:
        """Undo the latest action that is not undone; None if there is none."""
        return self._turn("SELECT max(id) FROM actions WHERE NOT undone", undone=True)

    def redo(self) -> Action | None:
        """Redo the action that was undone last, unless another action followed."""
        latest = "SELECT coalesce(max(id), 0) FROM actions WHERE NOT undone"
        return self._turn(f"SELECT min(id) FROM actions WHERE undone = {UNDONE} AND id > ({latest})", undone=False)

    def _turn(self, which: str, undone: bool) -> Action | None:
        with self._changing() as connection:
            (id,) = connection.execute(which).fetchone()
            if id is None:
                return None
            rows = connection.execute("SELECT kind, name, before, after FROM changes WHERE action = ?", (id,))
            changes = rows.fetchall()
            names = tuple(as_text(name) for _, name, _, _ in changes)
            for kind, name, before, after in changes:
                old, new = (after, before) if undone else (before, after)
                put(connection, kind, name, old, new)
            connection.execute("UPDATE actions SET undone = ? WHERE id = ?", (undone, id))
            increase_version(connection)
            row = connection.execute("SELECT id, at, who, about FROM actions WHERE id = ?", (id,)).fetchone()
        return Action(row[0], row[1], as_text(row[2]), as_text(row[3]), undone, names=names)

    def _act(
        self, connection: sqlite3.Connection, kind: Kind, changes: list[tuple[str, str | None, str | None]], about: str
    ) -> int | None:
        if not changes:
            return None
        connection.execute("UPDATE actions SET undone = ? WHERE undone", (FOR_GOOD,))  # they cannot be redone any more
        now, who = datetime.now(UTC).isoformat(timespec="seconds"), _user()
        cursor = connection.execute(
            "INSERT INTO actions (at, who, about) VALUES (?, ?, ?)",
            (now, as_bytes(who), as_bytes(about[:_ABOUT_LIMIT])),
        )
        for name, before, after in changes:
            old, new = (None if value is None else as_bytes(value) for value in (before, after))
            put(connection, kind, as_bytes(name), old, new)
            connection.execute(
                "INSERT INTO changes VALUES (?, ?, ?, ?, ?)", (cursor.lastrowid, kind, as_bytes(name), old, new)
            )
        for value in dict.fromkeys(after for _, _, after in changes if after is not None):
            connection.execute("INSERT OR IGNORE INTO words (kind, value) VALUES (?, ?)", (kind, as_bytes(value)))
        increase_version(connection)
        return cursor.lastrowid

    def write_labels(self) -> Path:
        """Write the CSV file now; returns its path."""
        try:
            # No other writer may come between reading the labels and writing the file.
            with self._transaction() as connection:
                if not connection.execute("SELECT EXISTS (SELECT 1 FROM unwritten)").fetchone()[0]:
                    return self.csv_file
                rows = current(connection, "label")
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

    def _take_over_csv(self, name_of: NameOf) -> None:
        """Import labels from the CSV file, which an earlier version of csml wrote or a user edited.

        Labels that were not yet written to the CSV because of a crash are kept, and so are rows that name no image:
        it may be back at the next start.
        """
        with self._connected() as connection:
            known = connection.execute("SELECT value FROM facts WHERE key = 'csv'").fetchone()
            unwritten = {as_text(name) for (name,) in connection.execute("SELECT name FROM unwritten")}
        if self.csv_file.exists() and (known is None or known[0] != _digest(self.csv_file)):
            known_images, strange = read_labels(self.csv_file, name_of)
            found = strange | known_images
            labels: dict[str, str | None] = dict.fromkeys(self.labels().keys() - found.keys())
            labels.update(found)
            changed = {name: label for name, label in labels.items() if name not in unwritten}
            self.set_labels(changed, f"{len(found):,} labels read from {self.csv_file.name}")
        self.write_labels()

    def _entries(self, kind: Kind) -> list[tuple[str, str]]:
        with self._connected() as connection:
            rows = connection.execute("SELECT name, value FROM entries WHERE kind = ?", (kind,)).fetchall()
        return [(as_text(name), as_text(value)) for name, value in rows]

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


def _digest(file: Path) -> str:
    return hashlib.blake2b(file.read_bytes(), digest_size=10).hexdigest() if file.exists() else ""


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container without a user name
        return "unknown"
