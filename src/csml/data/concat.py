"""Several data sets as one."""

from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from csml.data.images import BoxMaker, Images
from csml.files import cache_key


class ConcatImages:
    """The images of several data sets with the same classes, numbered consecutively.

    Args:
        members: the data sets.
        places: a prefix for the image names of each data set, if names of different sets may collide.
    """

    def __init__(self, members: Sequence[Images], places: Sequence[str] | None = None) -> None:
        self.members = list(members)
        self.places = [""] * len(self.members) if places is None else list(places)
        self.starts = np.cumsum([0, *(len(images) for images in members)])
        self.labels = np.concatenate([images.labels for images in members])
        self.classes = members[0].classes

    @property
    def channels(self) -> int:
        return self.members[0].channels

    def __len__(self) -> int:
        return int(self.starts[-1])

    def name(self, id: int) -> str:
        images, own = self.member(id)
        return self.places[self._number(id)] + images.name(own)

    def fingerprint(self) -> str:
        return cache_key(*(images.fingerprint() for images in self.members))

    def read(self, id: int) -> Image.Image:
        images, own = self.member(id)
        return images.read(own)

    def cut(self, ids: np.ndarray, cuts: Sequence[tuple[BoxMaker, int]]) -> tuple[list[Tensor], np.ndarray]:
        crops = [torch.zeros(len(ids), self.channels, size, size, dtype=torch.uint8) for _, size in cuts]
        good = np.zeros(len(ids), bool)
        for number, images in enumerate(self.members):
            rows = np.flatnonzero((ids >= self.starts[number]) & (ids < self.starts[number + 1]))
            if len(rows):
                member_cuts = [(_for_rows(make, rows), size) for make, size in cuts]
                member_crops, good[rows] = images.cut(ids[rows] - self.starts[number], member_cuts)
                for crop, member_crop in zip(crops, member_crops, strict=True):
                    crop[torch.from_numpy(rows)] = member_crop
        return crops, good

    def member(self, id: int) -> tuple[Images, int]:
        """The data set that an image comes from, and its id there."""
        number = self._number(id)
        return self.members[number], id - int(self.starts[number])

    def _number(self, id: int) -> int:
        return int(np.searchsorted(self.starts, id, side="right")) - 1


def _for_rows(make: BoxMaker, rows: np.ndarray) -> BoxMaker:
    """A BoxMaker for the given rows of the batch, for a member data set that counts them from 0."""

    def boxes(member_rows: slice, sizes: Tensor) -> Tensor:
        # A box depends only on the random numbers of its row in the whole batch, so boxes are made one row at a time.
        made = [make(slice(row, row + 1), sizes[i : i + 1]) for i, row in enumerate(rows[member_rows].tolist())]
        return torch.cat(made)

    return boxes
