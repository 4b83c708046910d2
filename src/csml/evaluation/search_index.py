"""Image search by similarity: the features of a data set, saved once as a memory-mapped array."""

import logging
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from lightning_fabric import Fabric
from torch import Tensor

from csml.config import ImagesConfig
from csml.data.failures import Failures
from csml.data.images import FolderImages, Images, source_ids, source_of
from csml.errors import CsmlError
from csml.evaluation.stored_features import stored_batches
from csml.files import atomic_write, cache_key, open_matrix
from csml.models.backbones import Backbone, feature_channels, weights_key
from csml.progress import watched
from csml.search.nearest_neighbors import empty_result, merge

log = logging.getLogger("csml")

_BATCH = 256
_VALUES = 1 << 19
"""Features converted to float32 at a time: 2 MB fit into the CPU cache, which makes a search twenty times as fast as
with larger blocks."""


class SearchIndex:
    """Cosine neighbours among N images, found exactly; rows are image ids.

    Args:
        features: `(N, C)` float16, L2-normalised; may be memory-mapped. A row of zeros is never similar to anything.
    """

    def __init__(self, features: Tensor) -> None:
        self.features = features

    def search(self, features: Tensor, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Features `(Q, C)` → ids `(Q, k)` int64 and cosine similarities `(Q, k)`, best first; k is at most N."""
        queries = F.normalize(features.float().cpu(), dim=1)
        found = empty_result(len(queries), k, queries.device)
        rows = max(1, _VALUES // self.features.shape[1])
        for start in range(0, len(self.features), rows):
            similarities = queries @ self.features[start : start + rows].float().T  # (Q, n)
            ids = torch.arange(start, start + similarities.shape[1]).expand_as(similarities)
            merge(found, slice(None), ids, similarities)
        return found[0].numpy(), found[1].numpy()


def open_index(folder: Path, backbone: Backbone, images: Images, config: ImagesConfig, fabric: Fabric) -> SearchIndex:
    """Open the index in `folder`. Build and save it first if it is missing or belongs to other weights or images."""
    file = index_file(folder, backbone, images, config)
    features = _read(file, len(images))
    if features is None:
        _make(file, backbone, images, config, fabric)
        log.info("index of %d images saved in %s", len(images), folder)
        features = _read(file, len(images))
        if features is None:
            raise CsmlError(f"{file} has vanished: another csml made an index of other weights there; try again")
    return SearchIndex(features)


def index_file(folder: Path, backbone: Backbone, images: Images, config: ImagesConfig) -> Path:
    """The file in which `open_index` stores the features: its name depends on the weights, the images and their
    size."""
    key = cache_key(weights_key(backbone), content_key(images), config.center_size, config.eval_crop)
    return folder / f"features-{key}.npy"


def _read(file: Path, images: int) -> Tensor | None:
    """Features `(N, C)`, or None if they must be computed: the index is a cache, so a damaged one is rebuilt."""
    try:
        # Copy-on-write, because torch warns about read-only memory. Nothing writes to it.
        features = torch.from_numpy(np.load(file, mmap_mode="c"))
    except (OSError, ValueError, EOFError):
        return None
    return features if len(features) == images else None


def _make(file: Path, backbone: Backbone, images: Images, config: ImagesConfig, fabric: Fabric) -> None:
    if not len(images):
        raise CsmlError("data: there is no image to search among")
    failures = Failures(images, config.max_failed)
    batches = stored_batches(backbone, images, config, fabric, batch_size=_BATCH)
    with atomic_write(file) as temporary:
        # float16 halves the file, and neighbours differ only where similarities agree to three digits.
        matrix = open_matrix(temporary, np.float16, (len(images), feature_channels(backbone)[4]))
        for batch in watched(batches, "features", total=-(-len(images) // _BATCH)):
            failures.add(batch.ids[~batch.good].tolist())
            rows = slice(int(batch.ids[0]), int(batch.ids[-1]) + 1)
            matrix[rows] = F.normalize(batch.by_stage[4], dim=1).numpy()  # unreadable images keep rows of zeros
        matrix.flush()  # type: ignore[attr-defined]
    _remove_old(file)


def _remove_old(file: Path) -> None:
    """Delete indexes of other weights or images, and those that early development versions saved for faiss."""
    old = [other for other in file.parent.glob("features-*.npy") if other != file]
    for path in (*old, *(file.with_name(name) for name in ("index.faiss", "index.json", "names.txt"))):
        path.unlink(missing_ok=True)


def content_key(images: Images) -> str:
    """A key that changes when an image changes, even if all file names stay the same."""
    source = source_of(images)
    if not isinstance(source, FolderImages):
        return images.fingerprint()
    times = np.array([_size_and_time(source.path(id)) for id in source_ids(images).tolist()], np.int64)
    return cache_key(str(source.index.root), images.fingerprint(), times.tobytes())


def _size_and_time(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:  # a broken link; the image counts as unreadable
        return -1, -1
    return status.st_size, status.st_mtime_ns
