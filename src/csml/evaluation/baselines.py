"""Baselines of a representation: the largest class, raw pixels, an untrained network, the starting weights."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from lightning_fabric import Fabric

from csml.config import PIXELS, STAGES, BackboneConfig, KnnConfig, is_untrained, is_weight_name
from csml.data.images import Images, evenly_spaced
from csml.distributed.world import world_of
from csml.errors import CsmlError
from csml.evaluation.knn import evaluate_knn
from csml.evaluation.search_index import content_key
from csml.files import cache_key, read_json, write_json
from csml.models.backbones import Backbone
from csml.models.raw_pixels import SIDE, RawPixels
from csml.runs.directory import RunDirectory
from csml.runs.run_of_weights import directory_of
from csml.weights import load_backbone, network_of, weights_digest
from csml.weights.named import untrained

MOST_IMAGES = 20_000
"""If there are more training or test images, baselines are computed on a fixed sample."""
CHANCE, UNTRAINED, START = "chance", "untrained", "start"
TITLES = {CHANCE: "largest class", PIXELS: "raw pixels", UNTRAINED: "untrained network", START: "starting weights"}
"""Display names."""


class Reference(NamedTuple):
    """A representation that serves as a baseline."""

    digest: str
    """changes when the representation does"""
    load: Callable[[], Backbone]


@dataclass(frozen=True)
class Baselines:
    """The baselines of some weights, on labelled images.

    Args:
        references: by name, one of `TITLES`.
        run: the run directory that stores the scores; None: they are computed on every call.
        train, val: labelled images, or a fixed sample if there are many.
        notes: about the sample, for the log.
    """

    references: dict[str, Reference]
    run: RunDirectory | None
    train: Images
    val: Images
    notes: tuple[str, ...]

    def chance(self) -> float:
        """Accuracy of always predicting the largest class of the training images."""
        largest = np.bincount(self.train.labels[self.train.labels >= 0]).argmax()
        return float((self.val.labels == largest).mean())

    def by_knn(self, config: KnnConfig, fabric: Fabric) -> dict[str, Any]:
        """Scores as in knn.json: `accuracy`, baseline → number of neighbours → share, and the numbers of images."""
        scores = {CHANCE: dict.fromkeys(map(str, config.k), self.chance())}
        scores |= {name: self._knn_of(name, config, fabric) for name in self.references}
        return {"accuracy": scores, "trained_on": len(self.train), "tested": len(self.val)}

    def _knn_of(self, name: str, config: KnnConfig, fabric: Fabric) -> dict[str, float]:
        own = _for_pixels(config) if name == PIXELS else config

        def evaluate(backbone: Backbone) -> dict[str, float]:
            result = evaluate_knn(backbone, self.train, self.val, own, fabric, TITLES[name], quiet=True)
            return dict(result["accuracy"])

        settings = ("knn", own.images.center_size, own.images.eval_crop, own.k, own.stage, own.temperature)
        return dict(self.score(name, settings, evaluate, fabric))

    def score(self, name: str, settings: object, evaluate: Callable[[Backbone], Any], fabric: Fabric) -> Any:
        """The result of `evaluate` for a baseline, from RUN/baselines.json if it is there for the same weights, images
        and settings. Every process of the run must call it."""
        reference = self.references[name]
        if self.run is None:
            return evaluate(reference.load())
        world, file = world_of(fabric), self.run.baselines
        key = cache_key(name, reference.digest, settings, content_key(self.train), content_key(self.val))
        if (known := world.broadcast(lambda: _read(file).get(key))) is not None:
            return known
        value = evaluate(reference.load())
        if world.is_rank_zero:
            with contextlib.suppress(OSError):  # a run on a read-only disk can be evaluated, too
                write_json(file, {**_read(file), key: value})
        return value


def baselines_of_weights(weights: str, train: Images, val: Images) -> Baselines:
    """The baselines of `weights`."""
    if is_untrained(weights):
        references = {} if weights == PIXELS else {PIXELS: Reference(PIXELS, partial(RawPixels, train.channels))}
        return _baselines(references, None, train, val)
    run = None if is_weight_name(weights) else directory_of(weights)
    return baselines_of_run(network_of(weights), run if run and run.config.exists() else None, train, val)


def baselines_of_run(network: BackboneConfig, run: RunDirectory | None, train: Images, val: Images) -> Baselines:
    """The baselines of a run with this network, before or after its training."""
    plain = BackboneConfig(network.backbone, network.small_images)
    references = {
        PIXELS: Reference(PIXELS, partial(RawPixels, train.channels)),
        UNTRAINED: Reference(repr(plain), partial(untrained, plain, train.channels)),
    }
    if run is not None and run.start.exists():
        references[START] = Reference(weights_digest(run.start), partial(load_backbone, run.start))
    return _baselines(references, run, train, val)


def _baselines(references: dict[str, Reference], run: RunDirectory | None, train: Images, val: Images) -> Baselines:
    sets = {"training": train, "test": val}
    notes = (
        f"baselines are computed on a fixed sample of {MOST_IMAGES:,} of the {len(images):,} {kind} images"
        for kind, images in sets.items()
        if len(images) > MOST_IMAGES
    )
    return Baselines(references, run, _spread(train), _spread(val), tuple(notes))


def _for_pixels(config: KnnConfig) -> KnnConfig:
    return replace(config, stage=STAGES[-1], images=replace(config.images, size=SIDE, eval_size=None, eval_crop=1.0))


def _spread(images: Images) -> Images:
    """At most MOST_IMAGES of them, evenly spaced by id, and so over classes stored one after the other."""
    if len(images) <= MOST_IMAGES:
        return images
    return evenly_spaced(images, MOST_IMAGES)


def _read(file: Path) -> dict[str, Any]:
    """The stored scores; empty if the file is missing or damaged, because they can be recomputed."""
    try:
        found = read_json(file)
    except CsmlError:
        return {}
    return found if isinstance(found, dict) else {}
