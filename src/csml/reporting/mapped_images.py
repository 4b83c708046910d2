"""The network of a run applied to its images: a map, nearest neighbours, and a kNN vote on test images."""

from dataclasses import dataclass

import numpy as np
import torch
from lightning_fabric import Fabric

from csml.api.fastest_precision import with_fastest_mode
from csml.config import STAGES, HardwareConfig, ImagesConfig, Layer, configure, field_keys
from csml.data.images import UNLABELED, Images, Subset
from csml.data.loading import fabric_for
from csml.data.open import DataSplits, open_data
from csml.evaluation.knn import TEMPERATURE, vote
from csml.evaluation.stored_features import stored_features
from csml.models.backbones import Backbone
from csml.reporting.layout import Map, lay_out
from csml.reporting.runs import FinishedRun
from csml.search.nearest_neighbors import nearest
from csml.weights import load_backbone

VOTERS = 20


@dataclass(frozen=True)
class Tests:
    """Q labelled test images, classified by the images on the map."""

    images: Images
    labels: np.ndarray
    """int64 `(Q,)`"""
    neighbors: np.ndarray
    """int64 `(Q, k)`: rows of the map, best first"""
    predicted: np.ndarray
    """int64 `(Q,)`, by the vote of the 20 nearest"""
    by_stage: dict[int, float]
    """kNN accuracy by the features of each stage"""


@dataclass(frozen=True)
class MappedImages:
    """N images with their map and test results by the network of a run."""

    run: FinishedRun
    images: Images
    labels: np.ndarray
    """int64 `(N,)`, −1 if unknown"""
    map: Map
    tests: Tests | None

    @property
    def classes(self) -> tuple[str, ...]:
        return self.images.classes

    def key(self) -> tuple[str, str]:
        """A key that is equal for runs on the same images."""
        tests = self.tests.images.fingerprint() if self.tests else ""
        return f"{self.run.settings['data']} {self.images.fingerprint()}", tests


def can_be_mapped(run: FinishedRun) -> bool:
    """Whether a run has a backbone and image settings."""
    return run.files.backbone.exists() and "images.size" in run.settings


@dataclass(frozen=True)
class OpenedRun:
    """Network and data of a run."""

    net: Backbone
    config: ImagesConfig
    fabric: Fabric
    data: DataSplits

    @property
    def images(self) -> Images:
        """The training images, without those that are held out for testing."""
        return self.data.train if self.data.labeled is None else self.data.labeled


def open_network_and_data(run: FinishedRun) -> OpenedRun:
    """Open the network and the data of a run on the best device of this machine."""
    config = images_config(run)
    data = open_data(run.settings["data"], config)
    net = load_backbone(run.root)
    fabric = fabric_for(data.train, config.workers, with_fastest_mode(HardwareConfig(), net, config.center_size)[0])
    return OpenedRun(net.to(fabric.device), config, fabric, data)


def map_images(run: FinishedRun, most: int, most_tests: int = 2000, seed: int = 0) -> MappedImages:
    """Apply the network to up to `most` images of the run, chosen by the seed, and to its test images."""
    opened = open_network_and_data(run)
    net, config, fabric, data = opened.net, opened.config, opened.fabric, opened.data
    images = _some(opened.images, most, seed)
    learnt = stored_features(net, images, config, fabric, stages=STAGES, description=f"features of {run.name}")
    good = learnt.good.numpy()
    if not good.all():  # an unreadable image has no features and cannot be on the map
        images = Subset(images, np.flatnonzero(good))
        learnt = learnt.subset(np.flatnonzero(good))
    tests = None
    if data.val is not None and data.labeled is not None:
        val = _some(data.val, most_tests, seed)
        found = stored_features(net, val, config, fabric, stages=STAGES, description="features of test images")
        if not bool(found.good.all()):
            readable = np.flatnonzero(found.good.numpy())
            val, found = Subset(val, readable), found.subset(readable)
        tests = _classify_tests(val, found.by_stage, found.labels, learnt.by_stage, learnt.labels)
    return MappedImages(run, images, learnt.labels.numpy(), lay_out(learnt.by_stage[4], seed=seed), tests)


def images_config(run: FinishedRun) -> ImagesConfig:
    """The image settings of any run; settings unknown to this version are left out."""
    known = {key: run.settings[f"images.{key}"] for key in field_keys(ImagesConfig) if f"images.{key}" in run.settings}
    return configure(ImagesConfig, Layer(known, str(run.root)))


def _classify_tests(
    images: Images,
    features: dict[int, torch.Tensor],
    labels: torch.Tensor,
    train: dict[int, torch.Tensor],
    train_labels: torch.Tensor,
) -> Tests:
    k = min(VOTERS, len(train_labels))
    by_stage = {}
    for stage in STAGES:
        neighbors, similarities = nearest(features[stage], train[stage], k)
        predicted = vote(neighbors, similarities, train_labels, TEMPERATURE)
        by_stage[stage] = float((predicted == labels).float().mean())
    return Tests(images, labels.numpy(), neighbors.numpy(), predicted.numpy(), by_stage)


def _some(images: Images, most: int, seed: int) -> Images:
    if len(images) <= most:
        return images
    return Subset(images, np.sort(np.random.default_rng(seed).permutation(len(images))[:most]))


def per_class(tests: Tests, classes: tuple[str, ...]) -> dict[str, float]:
    """kNN accuracy by class, for classes with test images."""
    right = tests.predicted == tests.labels
    return {name: float(right[tests.labels == c].mean()) for c, name in enumerate(classes) if (tests.labels == c).any()}


def is_labeled(seen: MappedImages) -> bool:
    return bool((seen.labels != UNLABELED).any())
