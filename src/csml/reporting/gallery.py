"""Rows of pictures for a page: neighbours of anchors during training, and of test images in several runs."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from csml.data.images import UNLABELED, Images
from csml.reporting.mapped_images import MappedImages
from csml.reporting.pictures import data_url, thumbnail

_SIDE = 64


@dataclass(frozen=True)
class Tile:
    """A picture, its name, and whether it has the class of the anchor (None: unknown)."""

    url: str
    name: str
    right: bool | None = None


def evolution(
    images: Images, omegas: list[tuple[int, np.ndarray]], anchors: int = 8, columns: int = 6
) -> list[dict[str, Any]]:
    """Anchors and their neighbours after several searches: `{"anchor": Tile, "searches": [(epoch, [Tile, …]), …]}`."""
    rows = []
    for anchor in one_per_class(images, anchors, has_neighbors(omegas[-1][1])):
        searches = [
            (epoch, [tile(images, id, anchor_label=images.labels[anchor]) for id in _kept(indices, anchor)[:columns]])
            for epoch, indices in omegas
        ]
        rows.append({"anchor": tile(images, anchor), "searches": searches})
    return rows


def nearest_of_tests(seen: list[MappedImages], queries: int = 8, columns: int = 6) -> list[dict[str, Any]]:
    """Test images and their nearest training images in each run: `{"query": Tile, "runs": [(name, [Tile, …]), …]}`."""
    first = seen[0].tests
    if first is None:
        return []
    columns -= max(0, min(len(seen), 4) - 2)  # so that a row fits on one line
    rows = []
    for query in one_per_class(first.images, queries):
        runs = []
        for one in seen:
            assert one.tests is not None
            ids = one.tests.neighbors[query][:columns].tolist()
            runs.append((one.run.name, [tile(one.images, id, one.tests.labels[query]) for id in ids]))
        rows.append({"query": tile(first.images, query), "runs": runs})
    return rows


def has_neighbors(indices: np.ndarray) -> np.ndarray:
    """Which images have a neighbour: `(N, k)` → `(N,)` bool; `neighbors.keep` may drop all neighbours of an image."""
    others: np.ndarray = (indices != np.arange(len(indices))[:, None]).any(axis=1)
    return others


def _kept(indices: np.ndarray, anchor: int) -> list[int]:
    """The neighbours of an anchor without the placeholders of dropped ones: repetitions, and the anchor itself."""
    return [id for id in dict.fromkeys(indices[anchor].tolist()) if id != anchor]


def one_per_class(images: Images, most: int, preferred: np.ndarray | None = None) -> list[int]:
    """One image from each of the first `most` classes, or evenly spaced images of unlabelled data.

    `preferred`: `(N,)` bool, images that are chosen before others.
    """
    labels = images.labels
    good = np.ones(len(images), dtype=bool) if preferred is None else preferred
    present = [label for label in range(len(images.classes)) if (labels == label).any()][:most]
    if present:
        classes = [np.flatnonzero(labels == label) for label in present]
        return [int((ids[good[ids]] if good[ids].any() else ids)[0]) for ids in classes]
    ids = np.flatnonzero(good) if good.any() else np.arange(len(images))
    return ids[np.unique(np.linspace(0, len(ids) - 1, most).astype(int))].tolist()


def tile(images: Images, id: int, anchor_label: int | None = None) -> Tile:
    """The tile of an image, compared with the label of the anchor if there is one."""
    picture = thumbnail(images, id, _SIDE)
    label = int(images.labels[id])
    known = anchor_label is not None and anchor_label != UNLABELED and label != UNLABELED
    name = images.name(id) + (f" ({images.classes[label]})" if label != UNLABELED else "")
    return Tile("" if picture is None else data_url(picture), name, bool(label == anchor_label) if known else None)
