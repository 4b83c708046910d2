"""Momentum contrast with any number of query and key views at any number of levels (METHOD §2, §3, §7)."""

import math

import torch
from torch import Tensor

from csml.config.schema import ContrastConfig
from csml.losses import info_nce
from csml.methods.framework import Embeddings, Framework, StepResult, repeated, total
from csml.methods.queue import KeyQueue
from csml.models.encoder import Encoder
from csml.models.split_batchnorm import split_batchnorm
from csml.views.recipe import Views
from csml.world import ALONE, World, whole


class MomentumContrast(Framework):
    """MoCo's two encoders and queue. MoCo v2 and CsMl differ only in the views and stages they are given."""

    def __init__(
        self, encoder: Encoder, queue_length: int, dim: int, config: ContrastConfig, world: World = ALONE
    ) -> None:
        if config.bn_splits > 1:
            split_batchnorm(encoder, config.bn_splits)
        super().__init__(encoder, world)
        self.config = config
        self.queue = KeyQueue(encoder.stages, queue_length, dim)
        self.chance = math.log(1 + queue_length)

    def forward(self, views: Views, generator: torch.Generator) -> StepResult:
        """The loss of all query views at all levels."""
        part = views.part or whole(len(views.known))
        if part.first:  # once a step
            self.follow(self.config.momentum)
        keys = {name: self.encode_keys(images, generator, part.together) for name, images in views.keys.items()}
        known = self.queue.holds(views.known) if self.config.mask_known else None  # (B, N)
        positives = {s: self.mine(keys, s) for s in self.stages}  # {stage: (P, B, D)}
        negatives = {s: self.queue.keys(s) for s in self.stages}  # {stage: (N, D)}

        tau, chunk = self.config.temperature, self.config.loss_chunk
        terms: dict[tuple[str, int], Tensor] = {}
        metrics: dict[str, Tensor] = {}
        for name, images in views.queries.items():
            query = self.query(images)  # {stage: (B·V, D)}
            weights = views.weights[name].to(images.device, non_blocking=True)  # (P,) or (P, B)
            for s in self.stages:
                v = len(query[s]) // len(views.known)
                positive = repeated(positives[s], v, dim=1)  # (P, B·V, D)
                ignore = None if known is None else repeated(known, v, dim=0)  # (B·V, N)
                result = info_nce(query[s], positive, weights, negatives[s], tau, ignore, chunk)
                terms[name, s] = result.loss.mean()
                metrics[f"loss/stage{s}/{name}"] = terms[name, s].detach()
                if name == "a":  # beside its own key: what MoCo's logs show
                    own = result.positive[0]  # (B,)
                    metrics[f"accuracy/stage{s}"] = (own > result.hardest).float().mean()
                    metrics[f"positive/stage{s}"] = own.mean()
                    metrics[f"negative/stage{s}"] = query[s].detach().mean(0) @ negatives[s].mean(0)
        loss = total(terms, views.groups, self.config.reduction)

        names = list(keys) if self.config.enqueue == "all" else ["a"]
        fresh = [(keys[name], self.world.gather(views.key_ids[name], part.together)) for name in names]
        return StepResult(loss, {"loss": loss.detach(), **metrics}, fresh)

    def after_backward(self, result: StepResult) -> None:
        """Let the new keys into the queue; not before backward, which still needs the old ones."""
        for keys, ids in result.fresh:
            self.queue.enqueue(keys, ids)

    def recent_keys(self) -> Embeddings:
        return {s: self.queue.keys(s) for s in self.stages}
