"""Exports labels, tags and suggestions to formats of other programs."""

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from csml.data.image_names import path_from_here
from csml.data.tables import cells
from csml.explorer.suggestions import NOTHING
from csml.explorer.workbench import Workbench


@dataclass(frozen=True)
class Row:
    """All data of one image."""

    path: str
    """from the current folder"""
    name: str
    """in the data folder"""
    label: str | None
    suggested: str | None
    probability: float | None
    tags: tuple[str, ...]
    more: dict[str, str | float | None]
    """further columns: class, split, those of a CSV file"""


def rows_of(workbench: Workbench, ids: Sequence[int]) -> Iterator[Row]:
    """All data of the given images."""
    said, suggested, tags = workbench.said(), workbench.suggestions(), workbench.store.tags()
    for id in ids:
        name, code = workbench.names[id], int(said.codes[id])
        guess = NOTHING if suggested is None else int(suggested.labels[id])
        more: dict[str, str | float | None] = {}
        for column in workbench.columns:
            value = column.values[id]
            if column.names is not None:
                more[column.title] = column.names[int(value)] if value >= 0 else None
            else:
                more[column.title] = None if value != value else float(value)
        yield Row(
            path_from_here(workbench.view.images, id),
            name,
            said.words[code] if code >= 0 else None,
            suggested.classes[guess] if suggested is not None and guess >= 0 else None,
            round(float(suggested.probabilities[id]), 4) if suggested is not None and guess >= 0 else None,
            tuple(tags.get(name, ())),
            more,
        )


def as_csv(rows: list[Row]) -> str:
    """A table; the tags of an image are separated by semicolons. `csml finetune --labels` reads its labelled rows."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    titles = list(rows[0].more) if rows else []
    writer.writerow(["path", "label", "suggested", "probability", "tags", *titles])
    for row in rows:
        known = (row.label, row.suggested, row.probability, ";".join(row.tags), *(row.more[title] for title in titles))
        writer.writerow(cells([row.path, *("" if value is None else value for value in known)]))
    return text.getvalue()


def as_list(rows: list[Row]) -> str:
    """File names, one per line, as `csml finetune --list` reads them."""
    return "".join(f"{row.path}\n" for row in rows)


def as_json_lines(rows: list[Row]) -> str:
    """One object per image; unknown values are left out."""
    lines = []
    for row in rows:
        known: dict[str, Any] = {"path": row.path, "label": row.label, "suggested": row.suggested}
        known |= {"probability": row.probability, "tags": list(row.tags) or None, **row.more}
        lines.append(json.dumps({key: value for key, value in known.items() if value is not None}) + "\n")
    return "".join(lines)


def as_coco(rows: list[Row]) -> str:
    """COCO's layout with one whole-image annotation per label; tags are a field of the image."""
    classes = _classes(rows)
    images = [{"id": id, "file_name": row.name, "tags": list(row.tags)} for id, row in enumerate(rows, 1)]
    labelled = [(id, row.label) for id, row in enumerate(rows, 1) if row.label is not None]
    annotations = [
        {"id": number, "image_id": id, "category_id": classes.index(label) + 1}
        for number, (id, label) in enumerate(labelled, 1)
    ]
    categories = [{"id": id, "name": name} for id, name in enumerate(classes, 1)]
    return json.dumps({"images": images, "annotations": annotations, "categories": categories}, indent=1)


def as_fiftyone(rows: list[Row]) -> str:
    """The labels.json of FiftyOne's FiftyOneImageClassificationDataset: image path without suffix → class number."""
    classes = _classes(rows)
    labels = {_stem(row.name): classes.index(row.label) for row in rows if row.label is not None}
    return json.dumps({"classes": classes, "labels": labels}, indent=1)


FORMATS: dict[str, tuple[str, Callable[[list[Row]], str]]] = {
    "csv": ("images.csv", as_csv),
    "list": ("images.txt", as_list),
    "jsonl": ("images.jsonl", as_json_lines),
    "coco": ("coco.json", as_coco),
    "fiftyone": ("labels.json", as_fiftyone),
}
"""File name and writer by format."""


def _classes(rows: list[Row]) -> list[str]:
    return sorted({row.label for row in rows if row.label is not None})


def _stem(path: str) -> str:
    folder, slash, file = path.rpartition("/")
    return folder + slash + (file.rpartition(".")[0] or file)
