"""One network applied to all images: their features, their map and, for a classifier, class probabilities."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from csml.config import ImagesConfig
from csml.data.cropping import crop_picture
from csml.data.decode import Decodable
from csml.data.images import ArrayImages, Images, source_of, store_of
from csml.evaluation.features import prepare, readable_rows
from csml.evaluation.search_index import SearchIndex, index_file, open_index
from csml.evaluation.stored_features import stored_batches
from csml.explorer.map_layout import MapLayout
from csml.files import cache_key, save_array
from csml.models.backbones import FeatureNet, normalization
from csml.models.classifier import Classifier
from csml.pixels import center_boxes, crop_resize
from csml.progress import watched
from csml.reporting.mapped_images import OpenedRun
from csml.runs.directory import RunDirectory
from csml.weights import load_backbone, load_classifier

_BLOCK = 8192
"""Number of rows converted to float32 at a time."""


@dataclass(frozen=True)
class ClassProbabilities:
    """Class probabilities of N images."""

    classes: tuple[str, ...]
    probabilities: Tensor
    """float32 `(N, classes)`; a row of zeros if an image cannot be read"""


@dataclass
class NetworkView:
    """A network, and its outputs for N images."""

    opened: OpenedRun
    index: SearchIndex
    key: str
    """changes with the weights and the images"""
    layout: MapLayout
    class_probabilities: ClassProbabilities | None
    """of a classifier"""

    @property
    def images(self) -> Images:
        return self.opened.data.train

    @cached_property
    def readable(self) -> np.ndarray:
        """bool `(N,)`: the image could be read."""
        return readable_rows(self.index.features).numpy()

    @torch.no_grad()
    def feature(self, picture: Decodable) -> Tensor:
        """The feature `(1, C)` of any picture."""
        config, device = self.opened.config, self.opened.fabric.device
        with self.opened.fabric.autocast():
            image = prepare(_crop(picture, self.images, config), device, normalization(self.opened.net))
            return FeatureNet(self.opened.net)(image)[4].float().cpu()


def open_view(run: RunDirectory, opened: OpenedRun, home: RunDirectory, seed: int) -> NetworkView:
    """Compute or reuse features, map and probabilities.

    Args:
        run: the run of the network, which may be a classifier.
        opened: its network, and the images.
        home: the explored run; anything that a fine-tuned network shares with it is reused.
        seed: of the map.
    """
    opened.net.eval()
    index = open_index(index_folder(run, home, opened), opened.net, opened.data.train, opened.config, opened.fabric)
    key = index_file(Path(), opened.net, opened.data.train, opened.config).stem
    layout = MapLayout(index.features, home.explore_map(cache_key(key, seed)), seed)
    probabilities = _class_probabilities(run, opened, index, key) if run.classifier.exists() else None
    return NetworkView(opened, index, key, layout, probabilities)


def index_folder(run: RunDirectory, home: RunDirectory, opened: OpenedRun) -> Path:
    """The folder of the features: that of `home` if the backbone is unchanged, else that of its own run."""
    shared = index_file(home.explore_index, opened.net, opened.data.train, opened.config)
    return shared.parent if shared.exists() else run.explore_index


def with_network_of(run: RunDirectory, opened: OpenedRun) -> OpenedRun:
    """The same images with the network of another run."""
    return replace(opened, net=load_backbone(run.root).to(opened.fabric.device))


def _class_probabilities(run: RunDirectory, opened: OpenedRun, index: SearchIndex, key: str) -> ClassProbabilities:
    classifier, facts = load_classifier(run.root)
    if classifier.unit:
        probabilities = _from_features(classifier, index.features)
    else:  # needs the norm of the features, which the index does not have
        file = run.explore_cache("probabilities", key)
        if not file.exists():
            save_array(file, _from_images(classifier, opened).numpy())
        probabilities = torch.from_numpy(np.load(file))
    return ClassProbabilities(tuple(facts["classes"]), probabilities)


@torch.no_grad()
def _from_features(classifier: Classifier, features: Tensor) -> Tensor:
    found = []
    for rows in features.split(_BLOCK):
        unit = rows.float()
        found.append(classifier.scores(unit).softmax(1) * unit.any(1, keepdim=True))
    return torch.cat(found)


@torch.no_grad()
def _from_images(classifier: Classifier, opened: OpenedRun) -> Tensor:
    images, fabric = opened.data.train, opened.fabric
    classifier = classifier.to(fabric.device)
    batches = stored_batches(classifier.backbone, images, opened.config, fabric)
    found = []
    for batch in watched(batches, "predicting", total=-(-len(images) // 256)):
        scores = classifier.scores(batch.by_stage[4].to(fabric.device)).float().cpu()
        found.append(scores.softmax(1) * batch.good[:, None])
    return torch.cat(found)


def _crop(picture: Decodable, images: Images, config: ImagesConfig) -> Tensor:
    """uint8 `(1, C, S, S)`, cropped like the images of the data, so that the same picture has the same features."""
    boxes = center_boxes(torch.tensor([[picture.height, picture.width]]), config.eval_crop)
    if isinstance(source_of(images), ArrayImages):
        return crop_resize(torch.from_numpy(np.array(picture.rgb()))[None], boxes, config.center_size)
    store = store_of(images)
    (cut,) = crop_picture(store.reduced(picture) if store else picture, boxes.numpy(), [config.center_size])
    return torch.from_numpy(cut).permute(2, 0, 1)[None]
