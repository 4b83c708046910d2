"""SimSiam with any number of query and key views at any number of levels: no negatives, no momentum encoder.

docs/method.md#simsiam
"""

import torch
from torch import Tensor

from csml.config import PretrainConfig, SimSiamConfig
from csml.distributed.world import ALONE, World, whole
from csml.methods.framework import Embeddings, Framework, StepResult, build_encoder
from csml.methods.prediction import ORTHOGONAL, Predictors, RecentKeys, prediction_loss
from csml.models.encoder import Encoder
from csml.models.sync_batchnorm import synchronised
from csml.views.recipe import Views

_NARROWING = 4
"""Bottleneck of a predictor: by default its hidden layer is this many times narrower than its head."""


class SimSiam(Framework):
    """A predictor per level predicts the key from the query. Keys are the query encoder's own embeddings, detached:
    the stop-gradient keeps them from collapsing. SimSiam and CsMl on SimSiam differ only in views and stages."""

    chance = ORTHOGONAL

    def __init__(self, encoder: Encoder, config: SimSiamConfig, world: World = ALONE) -> None:
        super().__init__(encoder, world)
        self.config = config
        bottleneck = {s: max(1, encoder.hidden[s] // _NARROWING) for s in encoder.stages}
        self.predictors = Predictors(
            encoder.dims, {s: config.predictor_hidden or bottleneck[s] for s in encoder.stages}
        )
        self.recent = RecentKeys(encoder.dims)

    @classmethod
    def from_config(cls, config: PretrainConfig, images: int, world: World, device: torch.device) -> "SimSiam":
        method = cls(build_encoder(config, norm=True), config.section(SimSiamConfig), world)
        # Without negatives BatchNorm leaks nothing, and statistics of the whole batch are better.
        synchronised(method, world, device)
        return method

    def forward(self, views: Views, generator: torch.Generator) -> StepResult:
        """The loss of all query views at all levels."""
        part = views.part or whole(len(views.known))
        embeddings = {name: self.query_encoder(images) for name, images in views.queries.items()}
        keys = {name: self._key(images, views, embeddings) for name, images in views.keys.items()}
        positives = {s: torch.stack([key[s] for key in keys.values()]) for s in self.stages}  # {stage: (P, B, D)}
        predictions = {name: self.predictors(embedding) for name, embedding in embeddings.items()}
        loss, metrics = prediction_loss(views, predictions, positives, self.config.reduction)
        anchors = {s: self.world.all_gather(key, part.in_flight) for s, key in keys["a"].items()}
        fresh = [(anchors, self.world.all_gather(views.key_ids["a"], part.in_flight))]
        return StepResult(loss, metrics, fresh)

    def _key(self, images: Tensor, views: Views, embeddings: dict[str, Embeddings]) -> Embeddings:
        """The embeddings of a key view; with symmetric views it is a query too, and has been encoded already."""
        for name, query in views.queries.items():
            if query is images:
                return {s: embedding.detach() for s, embedding in embeddings[name].items()}
        with torch.no_grad():
            return self.query_encoder(images)

    def after_backward(self, result: StepResult) -> None:
        self.recent.enqueue(*result.fresh[0])

    def recent_keys(self) -> Embeddings:
        return self.recent.filled()
