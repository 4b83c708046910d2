"""What a verb accepts as `data`: a folder, a name, or images in memory; opened once for all processes."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from csml.config import ImagesConfig, join_sources
from csml.data.bit_depth import reading_of
from csml.data.datasets import images_of
from csml.data.huggingface import is_dataset, open_dataset
from csml.data.images import Images
from csml.data.open import IN_MEMORY, DataSplits, open_data, splits_of, splits_to_test
from csml.distributed.world import World
from csml.errors import CsmlError

T = TypeVar("T")


def data_setting(data: Any, weights: Any = None) -> tuple[str | None, Any]:
    """Split the argument `data` (sources, or images in memory) into the setting and the images in memory.

    Without `data`, returns the images in memory that the run `weights` was trained on, if there were any.
    """
    if data is None:
        data = getattr(weights, "data", None)
    if data is None:
        return None, None
    if isinstance(data, str | Path):
        return str(data), None
    if isinstance(data, list | tuple) and data and all(isinstance(source, str | Path) for source in data):
        return join_sources(map(str, data)), None
    return IN_MEMORY, data


def open_splits(world: World, data: str, images: ImagesConfig, in_memory: Any = None) -> DataSplits:
    """Open the images of `data`, the same in all processes."""

    def opened() -> DataSplits:
        if in_memory is not None:
            return _splits_in_memory(in_memory, images)
        return open_data(data, images)

    return open_together(world, opened, lambda splits: splits.train, data)


def _splits_in_memory(data: Any, images: ImagesConfig) -> DataSplits:
    reading = reading_of(images)
    splits = open_dataset(data, reading, IN_MEMORY) if is_dataset(data) else {"train": images_of(data, reading)}
    return splits_to_test(splits_of(splits["train"], splits.get("val")), images.test)


def labeled_splits(world: World, data: str, images: ImagesConfig, in_memory: Any = None) -> tuple[Images, Images]:
    """Training and test images with labels."""
    splits = open_splits(world, data, images, in_memory)
    if splits.labeled is None or splits.val is None:
        raise CsmlError(f"data: {data} has no labels; one folder per class, or a table of path and label, gives them")
    return splits.labeled, splits.val


def open_together(world: World, open: Callable[[], T], images: Callable[[T], Images], data: str) -> T:
    """Call `open` in the first process of each machine, then in the others, and compare the results.

    The first one scans, downloads or draws, and fills the cache; the others wait and read it. An error of any process
    is raised in all of them.
    """
    if world.size == 1:
        return open()
    opened: T | None = None
    for turn in (True, False):
        problem = None
        if (int(os.environ.get("LOCAL_RANK", "0")) == 0) is turn:
            try:
                opened = open()
            except CsmlError as error:
                problem = str(error)
        problems = [text for text in world.all_gather_object(problem) if text is not None]
        if problems:
            raise CsmlError(problems[0])
    assert opened is not None
    if len(set(world.all_gather_object(images(opened).fingerprint()))) > 1:
        raise CsmlError(f"data: the processes see different images in {data}; every machine needs the same files")
    return opened
