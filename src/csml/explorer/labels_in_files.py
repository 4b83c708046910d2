"""Labels from files: the CSV beside the store, and the labels that a run of finetune was learnt from."""

import logging
from collections.abc import Callable
from pathlib import Path

from csml.data.image_names import Names
from csml.data.images import Images
from csml.data.tables import read_table

log = logging.getLogger("csml")

NameOf = Callable[[str], str | None]
"""Any form of an image's path → its name in the data; None if there is no such image."""


def names_in(images: Images) -> NameOf:
    """Accepts every form that `csml finetune --labels` accepts, such as the paths that `csml select` writes."""
    names = Names(images)

    def name_of(path: str) -> str | None:
        id = names.find(path)
        return None if id is None else images.name(id)

    return name_of


def read_labels(file: Path, name_of: NameOf) -> tuple[dict[str, str], dict[str, str]]:
    """Image name → label, and path → label of the rows that name no image of the data."""
    found: dict[str, str] = {}
    strange: dict[str, str] = {}
    rows = 0
    for _, path, label in read_table(file):
        name = name_of(path)
        if name is None:
            strange[path] = label
            rows += 1
        else:
            found[name] = label
    if strange:
        what = "1 row names" if rows == 1 else f"{rows:,} rows name"
        log.warning("%s: %s no image of the data, such as %s", file, what, next(iter(strange)))
    return found, strange
