"""What the network of a run makes of its images: a map, nearest images, and where a vote of neighbours goes wrong."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from torchvision.models.resnet import ResNet

from csml.config.schema import HardwareConfig, ImagesConfig
from csml.data.images import UNLABELED, Images, Subset
from csml.data.open import DataSplits, open_data
from csml.evaluation.features import extract_features
from csml.evaluation.knn import TEMPERATURE, vote
from csml.models.backbones import STAGES
from csml.neighbors.search import nearest
from csml.report.embedding import Map, embed
from csml.report.runs import FinishedRun
from csml.training.device import build_fabric
from csml.weights import load_backbone

VOTERS = 20


@dataclass(frozen=True)
class Tests:
    """Q labelled test images, judged by the images on the map."""

    images: Images
    labels: np.ndarray
    """int64 `(Q,)`"""
    neighbors: np.ndarray
    """int64 `(Q, k)`: rows of the map, best first"""
    predicted: np.ndarray
    """int64 `(Q,)`, by the vote of 20"""
    by_stage: dict[int, float]
    """share that is right, by features of each stage"""


@dataclass(frozen=True)
class Seen:
    """N images and what a run makes of them."""

    run: FinishedRun
    images: Images
    labels: np.ndarray
    """int64 `(N,)`, −1 where unknown"""
    map: Map
    tests: Tests | None

    @property
    def classes(self) -> tuple[str, ...]:
        return self.images.classes

    def key(self) -> tuple[str, str]:
        """Equal for runs that saw the same pictures."""
        tests = self.tests.images.fingerprint() if self.tests else ""
        return f"{self.run.settings['data']} {self.images.fingerprint()}", tests


def can_be_seen(run: FinishedRun) -> bool:
    return (run.root / "backbone.safetensors").exists() and "images.size" in run.settings


@dataclass(frozen=True)
class Opened:
    """A run that can look at images."""

    net: ResNet
    config: ImagesConfig
    fabric: Fabric
    data: DataSplits

    @property
    def images(self) -> Images:
        """Those it learnt from, less what is held out to test on."""
        return self.data.train if self.data.labeled is None else self.data.labeled


def open_seeing(run: FinishedRun) -> Opened:
    """Network and data of a run, on the device of this machine, which need not be the one it was made on."""
    config = settings_for(ImagesConfig, run, "images.")
    data = open_data(run.settings["data"], config)
    fabric = build_fabric(HardwareConfig(), data.train, config.workers)
    return Opened(load_backbone(run.root).to(fabric.device), config, fabric, data)


def see(run: FinishedRun, most: int, most_tests: int = 2000, seed: int = 0) -> Seen:
    """Look at up to `most` images of the run, chosen by the seed, and at its test images."""
    opened = open_seeing(run)
    net, config, fabric, data = opened.net, opened.config, opened.fabric, opened.data
    images = _some(opened.images, most, seed)
    learnt = extract_features(net, images, config, fabric, stages=STAGES, description=f"features of {run.name}")
    good = learnt.good.numpy()
    if not good.all():  # what cannot be read has no place on a map
        images = Subset(images, np.flatnonzero(good))
        learnt = learnt.subset(np.flatnonzero(good))
    tests = None
    if data.val is not None and data.labeled is not None:
        val = _some(data.val, most_tests, seed)
        found = extract_features(net, val, config, fabric, stages=STAGES, description="features of test images")
        if not bool(found.good.all()):
            val, found = (
                Subset(val, np.flatnonzero(found.good.numpy())),
                found.subset(np.flatnonzero(found.good.numpy())),
            )
        tests = _judge(val, found.by_stage, found.labels, learnt.by_stage, learnt.labels)
    return Seen(run, images, learnt.labels.numpy(), embed(learnt.by_stage[4], seed=seed), tests)


def settings_for(schema: type[Any], run: FinishedRun, prefix: str) -> Any:
    """A part of a run's settings as its dataclass."""
    known = {field.name for field in fields(schema)}
    values = {key[len(prefix) :]: value for key, value in run.settings.items() if key.startswith(prefix)}
    return schema(**{key: value for key, value in values.items() if key in known})


def _judge(
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
    """Share of each class's test images that is labelled rightly."""
    right = tests.predicted == tests.labels
    return {name: float(right[tests.labels == c].mean()) for c, name in enumerate(classes) if (tests.labels == c).any()}


def is_labeled(seen: Seen) -> bool:
    return bool((seen.labels != UNLABELED).any())
