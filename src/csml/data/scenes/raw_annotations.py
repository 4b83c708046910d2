"""The content of annotation files, before it is checked against the images."""

import logging
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from csml.data.tables import write_csv
from csml.errors import some

log = logging.getLogger("csml")


@dataclass(frozen=True)
class RawObject:
    """An object as stated in the annotation file."""

    name: str
    """name of its class"""
    box: tuple[float, float, float, float] | None
    """x0, y0, x1, y1; None: take it from the mask"""
    crowd: bool = False
    difficult: bool = False
    segmentation: Any = None
    """in COCO's form: polygons, or a run-length code, compressed or not"""


@dataclass(frozen=True)
class RawScene:
    """An image as stated in the annotation file."""

    path: Path
    id: int | str
    size: tuple[int, int] | None
    """height and width, if the file states them"""
    objects: list[RawObject]


class RawAnnotations(NamedTuple):
    """The annotations of one part."""

    scenes: list[RawScene]
    categories: dict[str, int]
    """ids of all classes by name, in the order of the ids; empty if the files do not number classes"""
    truth: Path | None = None
    """the COCO file that detections are scored against directly"""


@dataclass
class Repairs:
    """The problems found in annotations, and how each was handled."""

    rows: list[tuple[str, str, str]] = field(default_factory=list)
    """kind, image, detail"""

    def add(self, kind: str, image: object, detail: str = "") -> None:
        self.rows.append((kind, str(image), detail))

    def by_kind(self) -> dict[str, list[str]]:
        """The names of the images with each kind of problem."""
        found: dict[str, list[str]] = defaultdict(list)
        for kind, image, _ in self.rows:
            found[kind].append(image)
        return found

    def log(self) -> None:
        """Log one line per kind, with the first few image names."""
        for kind, names in self.by_kind().items():
            log.warning("%s: %d (%s)", kind, len(names), some(list(dict.fromkeys(names))))

    def write(self, path: Path) -> None:
        """Write all rows as CSV."""
        write_csv(path, [("kind", "image", "detail"), *self.rows])


@dataclass(frozen=True)
class Part:
    """A part of a data set to train or test on: a list, a file or a folder, read on demand."""

    name: str
    """its name for `--train` and `--test`"""
    role: str | None
    """train, val or test, if its name says so"""
    read: Callable[[Repairs], RawAnnotations]
    joins: bool = True
    """whether parts with the same role are used together; otherwise the user must name one"""
