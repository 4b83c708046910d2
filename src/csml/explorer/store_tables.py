"""The tables of the SQLite file of labels and tags, and the statements that read and change them."""

import sqlite3
from collections.abc import Iterable
from typing import Literal

Kind = Literal["label", "tag"]

UNDONE, FOR_GOOD = 1, 2
TABLES = """
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
# actions: `undone` is 0, UNDONE, or FOR_GOOD if another action followed.
# words: every label and tag ever used, in the order of first use, which determines its key and its colour.


def version_of(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT value FROM facts WHERE key = 'version'").fetchone()[0])


def increase_version(connection: sqlite3.Connection) -> None:
    """Increase the version, at the end of every change."""
    connection.execute("UPDATE facts SET value = value + 1 WHERE key = 'version'")


def labels_of(connection: sqlite3.Connection, names: Iterable[str]) -> dict[str, str]:
    found = {}
    for name in names:
        row = connection.execute("SELECT value FROM entries WHERE kind = 'label' AND name = ?", (as_bytes(name),))
        if (value := row.fetchone()) is not None:
            found[name] = as_text(value[0])
    return found


def current(connection: sqlite3.Connection, kind: Kind) -> dict[str, str]:
    rows = connection.execute("SELECT name, value FROM entries WHERE kind = ? ORDER BY name", (kind,))
    return {as_text(name): as_text(value) for name, value in rows}


def put(connection: sqlite3.Connection, kind: str, name: bytes, old: bytes | None, new: bytes | None) -> None:
    if kind == "label":
        connection.execute("INSERT OR IGNORE INTO unwritten VALUES (?)", (name,))
    if old is not None:
        connection.execute("DELETE FROM entries WHERE kind = ? AND name = ? AND value = ?", (kind, name, old))
    if new is not None:
        connection.execute("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", (kind, name, new))


def as_bytes(text: str) -> bytes:
    """Names and values are stored as bytes, because SQLite's text is strict UTF-8 and file names are not."""
    return text.encode("utf-8", "surrogateescape")


def as_text(stored: bytes | str) -> str:
    return stored.decode("utf-8", "surrogateescape") if isinstance(stored, bytes) else stored
