"""A small table: rows that are dictionaries, columns by name."""

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, overload


class Table(Sequence[dict[str, Any]]):
    """Rows by number, columns by name; `pandas.DataFrame(list(table))` works.

    Args:
        rows: may lack some columns.
    """

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    @property
    def columns(self) -> list[str]:
        """All names, in the order in which they first appear."""
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    @overload
    def __getitem__(self, place: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, place: slice) -> list[dict[str, Any]]: ...
    @overload
    def __getitem__(self, place: str) -> list[Any]: ...
    def __getitem__(self, place: int | slice | str) -> Any:
        """A row, some rows, or a column with None where a row lacks it."""
        if not isinstance(place, str):
            return self.rows[place]
        if place not in self.columns:
            raise KeyError(f"{place}; there are {', '.join(self.columns)}")
        return [row.get(place) for row in self.rows]

    def __repr__(self) -> str:
        cells = self._cells()
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.columns))]
        return "\n".join("  ".join(text.rjust(w) for text, w in zip(row, widths, strict=True)) for row in cells)

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        head, *body = ["".join(f"<td>{escape(text)}</td>" for text in row) for row in self._cells()]
        rows = "".join(f"<tr>{row}</tr>" for row in body)
        return f"<table><thead><tr>{head.replace('td>', 'th>')}</tr></thead><tbody>{rows}</tbody></table>"

    def _cells(self) -> list[list[str]]:
        return [self.columns, *([_text(row.get(name)) for name in self.columns] for row in self.rows)]


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
