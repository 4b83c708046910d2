"""A cache of features: knn, linear, embed, report, explore and neighbors of one run compute them only once.

An entry is one image, identified by its file (path, size, time) and by how it was processed (weights, size, crop,
precision). The entries computed by one command are one file, written atomically.
"""

import contextlib
import logging
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor

from csml.config import ImagesConfig
from csml.data.concat import ConcatImages
from csml.data.failures import Failures
from csml.data.images import FolderImages, Images, Subset, source_ids, source_of
from csml.distributed.world import world_of
from csml.evaluation.features import FeatureBatch, Features, extract_features, feature_batches
from csml.files import atomic_write, cache_dir, cache_key, remove_oldest
from csml.models.backbones import Backbone, feature_channels, weights_key
from csml.models.raw_pixels import RawPixels

log = logging.getLogger("csml")

_MOST = 2 * 10**9
"""Size limit of all entries together, in bytes."""
_FORMAT = 1
_DAMAGED = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile)
"""What numpy raises for an incomplete file."""


def stored_features(
    backbone: Backbone,
    images: Images,
    config: ImagesConfig,
    fabric: Fabric,
    stages: tuple[int, ...] = (4,),
    description: str = "features",
    failures: Failures | None = None,
    only_mine: bool = False,
) -> Features:
    """Like `extract_features`, for weights that are used again: cached features are not recomputed.

    Only images of folders and lists are cached, and only in a single process.
    """
    failures = failures or Failures(images, config.max_failed)
    if world_of(fabric).size > 1 or not can_keep(backbone, images):
        return extract_features(
            backbone, images, config, fabric, stages, description=description, failures=failures, only_mine=only_mine
        )
    store, keys = _Store(_folder(backbone, images, config, fabric)), np.array(image_keys(images))
    channels = feature_channels(backbone)
    by_stage = {stage: torch.zeros(len(images), count) for stage, count in channels.items()}
    good = store.read(keys, by_stage)
    if good.any():
        log.info("features of %s images were computed before", f"{good.sum():,} of {len(images):,}")
    missing = np.flatnonzero(~good)
    if len(missing):
        some = Subset(images, missing)
        found = extract_features(
            backbone, some, config, fabric, tuple(channels), description=description,
            failures=Failures(some, tolerated=1.0, quiet=True),
        )  # fmt: skip
        read = found.good.numpy()
        for stage, values in found.by_stage.items():
            by_stage[stage][torch.from_numpy(missing)] = values
        good[missing[read]] = True
        store.write(keys[missing[read]], {stage: values[found.good] for stage, values in found.by_stage.items()})
        failures.add(missing[~read].tolist())
    labels = torch.from_numpy(images.labels)
    return Features({stage: by_stage[stage] for stage in stages}, torch.from_numpy(good), labels)


def stored_batches(
    backbone: Backbone, images: Images, config: ImagesConfig, fabric: Fabric, stage: int = 4, batch_size: int = 256
) -> Iterator[FeatureBatch]:
    """Like `feature_batches` for one stage, from the cache if it can hold these images."""
    if world_of(fabric).size > 1 or not can_keep(backbone, images):
        yield from feature_batches(backbone, images, config, fabric, (stage,), batch_size)
        return
    everything = Failures(images, tolerated=1.0, quiet=True)  # the caller counts failures
    found = stored_features(backbone, images, config, fabric, (stage,), failures=everything)
    for ids in torch.arange(len(images)).split(batch_size):
        yield FeatureBatch(ids, {stage: found.by_stage[stage][ids]}, found.good[ids])


def image_keys(images: Images) -> list[str] | None:
    """A key for each image that changes with the file; None if images are not separate files."""
    source, ids = source_of(images), source_ids(images)
    if isinstance(source, ConcatImages):
        members = [image_keys(member) for member in source.members]
        every = [key for keys in members if keys is not None for key in keys]
        return [every[id] for id in ids.tolist()] if all(keys is not None for keys in members) else None
    if not isinstance(source, FolderImages):
        return None
    return [_key(source.path(id)) for id in ids.tolist()]


def features_folder() -> Path:
    return cache_dir() / "features"


class _Store:
    """Entries of one network, size and crop: files of keys `(n,)` and features `(n, C)` by stage."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, keys: np.ndarray, by_stage: dict[int, Tensor]) -> np.ndarray:
        """Fill in the cached rows; returns which they are, bool `(N,)`."""
        found = np.zeros(len(keys), bool)
        for file in sorted(self.folder.glob("*.npz")):
            # A damaged file is recomputed: zip files have checksums.
            with contextlib.suppress(*_DAMAGED), np.load(file) as kept:
                theirs, values = kept["keys"], {stage: kept[f"stage{stage}"] for stage in by_stage}
                order = np.argsort(theirs)
                places = order[np.searchsorted(theirs, keys, sorter=order).clip(max=len(theirs) - 1)]  # (N,)
                same = theirs[places] == keys
                for stage, target in by_stage.items():
                    target[torch.from_numpy(same)] = torch.from_numpy(values[stage][places[same]])
                found |= same
        return found

    def write(self, keys: np.ndarray, by_stage: dict[int, Tensor]) -> None:
        """Store more entries, and remove the oldest of all networks if there are too many."""
        size = sum(values.numel() * 4 for values in by_stage.values())
        if not len(keys) or size > _MOST // 2:
            return
        with contextlib.suppress(OSError):  # the cache is optional
            with atomic_write(self.folder / f"{cache_key(keys.tobytes())}.npz") as temporary:
                arrays = {f"stage{stage}": values.float().numpy() for stage, values in by_stage.items()}
                with temporary.open("wb") as file:
                    np.savez(file, **{"keys": keys, **arrays})  # type: ignore[arg-type]  # numpy's own flag is a keyword too
            remove_oldest(features_folder().glob("*/*.npz"), _MOST)


def can_keep(backbone: Backbone, images: Images) -> bool:
    """Whether the features of these images are worth caching, and fit."""
    room = 4 * len(images) * sum(feature_channels(backbone).values())
    return 0 < room <= _MOST // 2 and _in_files(images) and not isinstance(backbone, RawPixels)


def _in_files(images: Images) -> bool:
    source = source_of(images)
    if isinstance(source, ConcatImages):
        return all(_in_files(member) for member in source.members)
    return isinstance(source, FolderImages)


def _folder(backbone: Backbone, images: Images, config: ImagesConfig, fabric: Fabric) -> Path:
    """One folder for each network and image processing. Crops differ by rounding with the side of cached images."""
    source = source_of(images)
    first = source_of(source.members[0]) if isinstance(source, ConcatImages) else source
    decoded = getattr(first, "decoded", None)
    reading = (images.channels, config.sixteen_bit, decoded and decoded.side)
    precision = fabric.strategy.precision.precision
    key = cache_key(_FORMAT, weights_key(backbone), config.center_size, config.eval_crop, reading, precision)
    return features_folder() / key


def _key(path: Path) -> str:
    try:
        status = path.stat()
    except OSError:  # a broken link; the image counts as unreadable and is not cached
        return cache_key(str(path))
    return cache_key(str(path), status.st_size, status.st_mtime_ns)
