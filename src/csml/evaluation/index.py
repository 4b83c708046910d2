"""Images that can be searched by an image: a faiss index beside the names it speaks of."""

import json
import logging
from pathlib import Path

import faiss
import numpy as np
import torch.nn.functional as F
from lightning_fabric import Fabric
from torch import Tensor
from torchvision.models.resnet import ResNet

from csml.config.schema import ImagesConfig
from csml.data.cache import atomic_write, cache_key
from csml.data.failures import Failures
from csml.data.images import FolderImages, Images
from csml.errors import CsmlError, reason
from csml.evaluation.features import feature_batches
from csml.models.backbones import weights_key
from csml.progress import watched
from csml.training.run_directory import write_json

log = logging.getLogger("csml")

_BATCH = 256


class SearchIndex:
    """Cosine neighbours among images; rows of the index are image ids.

    Args:
        index: of L2-normalised features, by inner product.
        names: of the images, by id.
    """

    def __init__(self, index: "faiss.Index", names: list[str]) -> None:
        self.index = index
        self.names = names

    def search(self, features: Tensor, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Features `(Q, C)` → ids `(Q, k)` int64 and cosine similarities `(Q, k)`, best first."""
        similarities, ids = self.index.search(F.normalize(features.float(), dim=1).cpu().numpy(), k)
        return ids, similarities


def open_index(folder: Path, backbone: ResNet, images: Images, config: ImagesConfig, fabric: Fabric) -> SearchIndex:
    """The index saved in `folder`, if it is of these weights and images; else it is made and saved there."""
    origin = cache_key(weights_key(backbone), _state(images), config.size, config.eval_crop)
    facts = folder / "index.json"
    if facts.exists() and json.loads(facts.read_text())["origin"] == origin:
        try:
            names = (folder / "names.txt").read_text("utf-8", "surrogateescape").split("\n")
            return SearchIndex(faiss.read_index(str(folder / "index.faiss")), names)
        except (RuntimeError, OSError) as error:
            raise CsmlError(f"{folder} cannot be read ({reason(error)}); delete it to make it anew") from error
    made = _make(backbone, images, config, fabric)
    with atomic_write(folder / "index.faiss") as temporary:
        faiss.write_index(made.index, str(temporary))
    with atomic_write(folder / "names.txt") as temporary:
        temporary.write_text("\n".join(made.names), "utf-8", "surrogateescape")
    write_json(facts, {"origin": origin, "images": len(images), "dimensions": made.index.d})  # last: all is there
    log.info("index of %d images saved in %s", len(images), folder)
    return made


def _make(backbone: ResNet, images: Images, config: ImagesConfig, fabric: Fabric) -> SearchIndex:
    failures = Failures(images, config.max_failed)
    index: faiss.Index | None = None
    batches = feature_batches(backbone, images, config, fabric, batch_size=_BATCH)
    for batch in watched(batches, "features", total=-(-len(images) // _BATCH)):
        failures.add(batch.ids[~batch.good].tolist())
        features = F.normalize(batch.by_stage[4], dim=1).numpy()  # zeros stay zeros: never near anything
        if index is None:
            # Half precision: half the memory, and neighbours differ only where similarities agree to three digits.
            kind = faiss.ScalarQuantizer.QT_fp16
            index = faiss.IndexScalarQuantizer(features.shape[1], kind, faiss.METRIC_INNER_PRODUCT)
            index.train(features)
        index.add(features)
    if index is None:
        raise CsmlError("data: there is no image to search among")
    return SearchIndex(index, [images.name(id) for id in range(len(images))])


def _state(images: Images) -> str:
    """Changes when an image does, even if all names stay."""
    if not isinstance(images, FolderImages):
        return images.fingerprint()
    stats = [images.path(id).stat() for id in range(len(images))]
    times = np.array([(stat.st_size, stat.st_mtime_ns) for stat in stats], np.int64)
    return cache_key(str(images.index.root), images.fingerprint(), times.tobytes())
