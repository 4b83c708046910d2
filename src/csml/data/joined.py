"""Several sets of images as one."""

from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from csml.data.cache import cache_key
from csml.data.images import BoxMaker, Images


class Joined:
    """The images of all parts, numbered one after the other; the parts have the same classes."""

    def __init__(self, parts: Sequence[Images]) -> None:
        self.parts = list(parts)
        self.starts = np.cumsum([0, *(len(part) for part in parts)])
        self.labels = np.concatenate([part.labels for part in parts])
        self.classes = parts[0].classes

    def __len__(self) -> int:
        return int(self.starts[-1])

    def name(self, id: int) -> str:
        part = self._part(id)
        return self.parts[part].name(id - int(self.starts[part]))

    def fingerprint(self) -> str:
        return cache_key(*(part.fingerprint() for part in self.parts))

    def read(self, id: int) -> Image.Image:
        part = self._part(id)
        return self.parts[part].read(id - int(self.starts[part]))

    def cut(self, ids: np.ndarray, cuts: Sequence[tuple[BoxMaker, int]]) -> tuple[list[Tensor], np.ndarray]:
        crops = [torch.zeros(len(ids), 3, size, size, dtype=torch.uint8) for _, size in cuts]
        good = np.zeros(len(ids), bool)
        for number, part in enumerate(self.parts):
            rows = np.flatnonzero((ids >= self.starts[number]) & (ids < self.starts[number + 1]))
            if len(rows):
                own = [(_of_rows(make, rows), size) for make, size in cuts]
                found, good[rows] = part.cut(ids[rows] - self.starts[number], own)
                for crop, some in zip(crops, found, strict=True):
                    crop[torch.from_numpy(rows)] = some
        return crops, good

    def _part(self, id: int) -> int:
        return int(np.searchsorted(self.starts, id, side="right")) - 1


def _of_rows(make: BoxMaker, rows: np.ndarray) -> BoxMaker:
    """Boxes of some rows of the batch, for a part that counts them from 0."""

    def boxes(some: slice, sizes: Tensor) -> Tensor:
        # A box depends on its row's random numbers alone, so each is asked for by its place in the whole batch.
        made = [make(slice(row, row + 1), sizes[i : i + 1]) for i, row in enumerate(rows[some].tolist())]
        return torch.cat(made)

    return boxes
