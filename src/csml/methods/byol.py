"""BYOL with any number of query and key views at any number of levels: no queue, no negatives.

docs/method.md#byol
"""

import math

import torch

from csml.config import ByolConfig, PretrainConfig
from csml.distributed.world import ALONE, World, whole
from csml.methods.framework import Embeddings, StepResult, build_encoder
from csml.methods.momentum import MomentumFramework
from csml.methods.prediction import ORTHOGONAL, Predictors, RecentKeys, prediction_loss
from csml.models.encoder import Encoder
from csml.models.sync_batchnorm import synchronised
from csml.views.recipe import Views


class Byol(MomentumFramework):
    """A predictor per level predicts the key from the query. BYOL and CsMl on BYOL differ only in views and stages."""

    chance = ORTHOGONAL

    def __init__(self, encoder: Encoder, config: ByolConfig, world: World = ALONE) -> None:
        super().__init__(encoder, world)
        self.config = config
        self.predictors = Predictors(
            encoder.dims, {s: config.predictor_hidden or encoder.hidden[s] for s in encoder.stages}
        )
        self.recent = RecentKeys(encoder.dims)

    @classmethod
    def from_config(cls, config: PretrainConfig, images: int, world: World, device: torch.device) -> "Byol":
        method = cls(build_encoder(config, norm=True), config.section(ByolConfig), world)
        # Without negatives BatchNorm leaks nothing, and statistics of the whole batch are better.
        synchronised(method, world, device)
        return method

    def forward(self, views: Views, generator: torch.Generator) -> StepResult:
        """The loss of all query views at all levels."""
        part = views.part or whole(len(views.known))
        if part.first:  # once a step
            self.follow(self.momentum())
        keys = {name: self.encode_keys(images, generator, part.in_flight) for name, images in views.keys.items()}
        predictions = {name: self.predictors(self.query_encoder(images)) for name, images in views.queries.items()}
        loss, metrics = prediction_loss(views, predictions, self.positives(keys), self.config.reduction)
        fresh = [(keys["a"], self.world.all_gather(views.key_ids["a"], part.in_flight))]
        return StepResult(loss, metrics, fresh)

    def momentum(self) -> float:
        """m: rises from its start to 1 as half a cosine over the run."""
        return 1 - (1 - self.config.momentum) * (math.cos(math.pi * self.progress) + 1) / 2

    def after_backward(self, result: StepResult) -> None:
        self.recent.enqueue(*result.fresh[0])

    def recent_keys(self) -> Embeddings:
        return self.recent.filled()
