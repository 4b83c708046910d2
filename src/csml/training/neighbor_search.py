"""The neighbour set Ω of a run: when it is searched, and in which features (docs/method.md#neighbors)."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor

from csml.config import STAGES, PretrainConfig
from csml.data.failures import Failures
from csml.data.images import Images
from csml.distributed.world import world_of
from csml.evaluation.features import Features, extract_features
from csml.methods import StepResult
from csml.methods.framework import Framework
from csml.methods.key_memory import KeyMemory
from csml.models.backbones import Backbone
from csml.runs.directory import RunDirectory
from csml.search.omega import Omega, filter_neighbors, purity, save_omega, search_omega, turnover
from csml.search.whitening import whitened
from csml.weights import load_backbone


class NeighborSearch:
    """Searches the neighbour set Ω whenever it is due, and holds the result.

    Args:
        config: checked settings.
        images: the training images.
        failures: collects the ids of images that cannot be read.
        run: where neighbour sets are written, and where the starting weights are.
        fabric: device and processes.
        network: the framework, for its keys if `neighbors.features` is online.
    """

    def __init__(
        self,
        config: PretrainConfig,
        images: Images,
        failures: Failures,
        run: RunDirectory,
        fabric: Fabric,
        network: Framework,
    ) -> None:
        self.config, self.images, self.failures, self.run, self.fabric = config, images, failures, run, fabric
        self.world, self.device = world_of(fabric), fabric.device
        self.found: Omega | None = None
        self.metrics: dict[str, Any] = {}
        """metrics of the search before the current epoch, if there was one"""
        online = config.views.cross_sample and config.neighbors.features == "online"
        self.own: KeyMemory | None = None
        """the newest key of every image, if keys are searched and the framework does not store them"""
        if online and network.memory is None:
            dims = {STAGES[-1]: network.query_encoder.dims[STAGES[-1]]}
            self.own = KeyMemory(dims, len(images), torch.float16).to(self.device)
        self.memory = (network.memory or self.own) if online else None
        """the keys to search in, at most one epoch old; None: the search uses other features"""

    @property
    def sets_to_draw(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        """The neighbour sets from which x_p is drawn, and their similarities if they weight the draw; None: x_p =
        x_a."""
        if self.found is None or not self.config.views.neighbor_views:
            return None, None
        return self.found.indices, self.found.similarities if self.config.neighbors.draw == "similar" else None

    def neighbors_of(self, ids: np.ndarray) -> np.ndarray:
        """The neighbour set of each of the images `(B,)`: `(B, k)`, k = 0 before the first search."""
        return np.empty((len(ids), 0), np.int64) if self.found is None else self.found.indices[ids]

    def is_due(self, epoch: int) -> bool:
        """Whether to search before this epoch."""
        settings = self.config.neighbors
        if not self.config.views.cross_sample or settings.k == 0 or (self.found and self.found.epoch == epoch):
            return False
        since = epoch - settings.warmup_epochs
        if settings.features == "start":
            return since == 0
        return since >= 0 and since % settings.refresh_every == 0

    def after_backward(self, result: StepResult) -> None:
        """Store the anchors' keys of a step, unless the framework does."""
        if self.own is not None:
            keys, ids = result.fresh[0]
            self.own.enqueue({STAGES[-1]: keys[STAGES[-1]]}, ids)

    def search(self, epoch: int, backbone: Backbone, default_features: Callable[[], Features]) -> None:
        """Search with the weights after `epoch` epochs.

        Args:
            epoch: number of completed epochs.
            backbone: the backbone of the encoder in `neighbors.encoder`.
            default_features: computes this process's share of its features at the evaluation size, shared with other
                uses.
        """
        settings, started = self.config.neighbors, time.monotonic()
        features, good = self._features(backbone, default_features)
        if settings.whiten > 0:
            features = whitened(features, good, settings.whiten, self.world)
        found = search_omega(features, good, settings.k, epoch, settings.recall, self.world)
        found = filter_neighbors(found, settings.keep, settings.mutual)
        self.metrics = {"omega/purity": purity(found.indices, self.images.labels)}
        self.metrics["search_seconds"] = time.monotonic() - started
        if self.found is not None:
            self.metrics["omega/turnover"] = turnover(self.found.indices, found.indices)
        self.found = found
        if self.world.is_rank_zero:
            save_omega(self.run.neighbors(epoch), found)

    def _features(self, backbone: Backbone, default_features: Callable[[], Features]) -> tuple[Tensor, Tensor]:
        """This process's share `(n, C)`, and which of the images could be read, `(n,)` bool on the CPU."""
        settings, images = self.config.neighbors, self.config.images
        if self.memory is not None:
            share = self.world.share(len(self.images))
            return self.memory.keys(STAGES[-1])[share], ~self.memory.is_empty()[share].cpu()
        size = max(settings.size or 0, images.center_size)
        if settings.features == "pass" and size == images.center_size:
            pooled = default_features()
        else:
            net = load_backbone(self.run.start).to(self.device) if settings.features == "start" else backbone
            pooled = extract_features(
                net, self.images, replace(images, eval_size=size), self.fabric,
                failures=self.failures, unit_halves=True, only_mine=True,
            )  # fmt: skip
        return pooled.by_stage[STAGES[-1]].to(self.device), pooled.good

    def state_dict(self) -> dict[str, Any]:
        omega = self.found
        return {
            "omega": None if omega is None else torch.from_numpy(omega.indices),
            "similarities": None if omega is None else torch.from_numpy(omega.similarities),
            "omega_epoch": -1 if omega is None else omega.epoch,
            "keys": None if self.own is None else self.own.state_dict(),
            "searched": self.metrics,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state["omega"] is not None:
            self.found = Omega(state["omega"].numpy(), state["similarities"].numpy(), state["omega_epoch"])
        if self.own is not None:
            self.own.load_state_dict(state["keys"] if "keys" in state else _keys_of_a_bank(state["bank"]))
        self.metrics = state["searched"]


def _keys_of_a_bank(bank: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state of a `KeyMemory`, from a checkpoint of an early development version, which used other tensor
    names."""
    return {f"keys_{STAGES[-1]}": bank["keys"], "filled": bank["seen"]}
