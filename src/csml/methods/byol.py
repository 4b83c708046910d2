"""BYOL with any number of query and key views at any number of levels: no queue, no negatives (METHOD §6)."""

import math

import torch
from torch import Tensor, nn

from csml.config.schema import ByolConfig
from csml.losses import predictive
from csml.methods.framework import Embeddings, Framework, StepResult, repeated, total
from csml.methods.queue import EMPTY, KeyQueue
from csml.models.encoder import Encoder
from csml.models.heads import mlp
from csml.views.recipe import Views
from csml.world import ALONE, World, whole

_RECENT = 1024
"""Keys kept for statistics; they are no negatives."""


class Byol(Framework):
    """A predictor per level guesses the key from the query. BYOL and CsMl on BYOL differ only in views and stages.

    As METHOD has it, the predictor sees the L2-normalised projection; its BatchNorm gives it back a scale.
    """

    chance = 2.0  # orthogonal

    def __init__(self, encoder: Encoder, dim: int, config: ByolConfig, world: World = ALONE) -> None:
        super().__init__(encoder, world)
        self.config = config
        hidden = {s: config.predictor_hidden or encoder.hidden[s] for s in encoder.stages}
        self.predictors = nn.ModuleDict({str(s): mlp(dim, hidden[s], dim, norm=True) for s in encoder.stages})
        self.recent = KeyQueue(encoder.stages, _RECENT, dim)

    def forward(self, views: Views, generator: torch.Generator) -> StepResult:
        """The loss of all query views at all levels."""
        part = views.part or whole(len(views.known))
        if part.first:  # once a step
            self.follow(self.momentum())
        keys = {name: self.encode_keys(images, generator, part.together) for name, images in views.keys.items()}
        positives = {s: self.mine(keys, s) for s in self.stages}  # {stage: (P, B, D)}

        terms: dict[tuple[str, int], Tensor] = {}
        metrics: dict[str, Tensor] = {}
        for name, images in views.queries.items():
            query = self.query(images)  # {stage: (B·V, D)}
            for s in self.stages:
                positive = repeated(positives[s], len(query[s]) // len(views.known), dim=1)  # (P, B·V, D)
                weights = views.weights[name].to(positive.device, non_blocking=True)  # (P,) or (P, B)
                result = predictive(query[s], positive, weights)
                terms[name, s] = result.loss.mean()
                metrics[f"loss/stage{s}/{name}"] = terms[name, s].detach()
                if name == "a":
                    metrics[f"positive/stage{s}"] = result.positive[0].mean()
        loss = total(terms, views.groups, self.config.reduction)

        fresh = [(keys["a"], self.world.gather(views.key_ids["a"], part.together))]
        return StepResult(loss, {"loss": loss.detach(), **metrics}, fresh)

    def query(self, images: Tensor) -> Embeddings:
        """The predictions, not normalised."""
        return {s: self.predictors[str(s)](embedding) for s, embedding in self.query_encoder(images).items()}

    def momentum(self) -> float:
        """m: from its start to 1 as half a cosine over the run."""
        return 1 - (1 - self.config.momentum) * (math.cos(math.pi * self.progress) + 1) / 2

    def after_backward(self, result: StepResult) -> None:
        """Remember the anchors' keys: a collapse shows in them, and nowhere else."""
        self.recent.enqueue(*result.fresh[0])

    def recent_keys(self) -> Embeddings:
        filled = self.recent.ids != EMPTY  # (N,)
        return {s: self.recent.keys(s)[filled] for s in self.stages}
