"""Momentum contrast: MoCo's queue of negatives, with any number of query and key views at any number of levels.

docs/method.md#loss, docs/method.md#levels, docs/method.md#batchnorm
"""

import math
from dataclasses import replace

import torch
from torch import Tensor

from csml.config import ContrastConfig, PretrainConfig
from csml.distributed.world import ALONE, World, whole
from csml.losses import Neighbors, info_nce
from csml.methods.framework import Embeddings, StepResult, build_encoder, repeated, total
from csml.methods.key_memory import KeyMemory, neighbor_weights
from csml.methods.momentum import MomentumFramework
from csml.methods.queue import KeyQueue
from csml.models.encoder import Encoder
from csml.models.split_batchnorm import split_batchnorm
from csml.views.recipe import Views

_LONGEST_QUEUE = 65_536
_SHORTEST_QUEUE = 256


class MomentumContrast(MomentumFramework):
    """MoCo's two encoders and queue. MoCo v2 and CsMl differ only in their views and stages."""

    def __init__(self, encoder: Encoder, queue_length: int, config: ContrastConfig, world: World = ALONE) -> None:
        if config.bn_splits > 1:
            split_batchnorm(encoder, config.bn_splits)
        super().__init__(encoder, world)
        self.config = config
        self.queue = (KeyMemory if config.memory else KeyQueue)(encoder.dims, queue_length)
        self.chance = math.log(1 + queue_length)

    @classmethod
    def from_config(cls, config: PretrainConfig, images: int, world: World, device: torch.device) -> "MomentumContrast":
        settings = config.section(ContrastConfig)
        # Each process, and each piece of a batch, is already a separate sub-batch.
        splits = max(1, settings.bn_splits // (world.size * config.hardware.accumulate))
        encoder = build_encoder(config, norm=False)
        length = images if settings.memory else queue_length(settings, images)
        return cls(encoder, length, replace(settings, bn_splits=splits), world)

    @classmethod
    def warnings(cls, config: PretrainConfig, images: int) -> list[str]:
        settings = config.section(ContrastConfig)
        length = queue_length(settings, images)
        if length < images or settings.mask_known or settings.memory:
            return []
        return [
            f"contrast.queue_length: {length} is as long as the data set ({images} images), so an image's own past key "
            "becomes its negative; choose less than half of it, or set contrast.mask_known to true"
        ]

    def forward(self, views: Views, generator: torch.Generator) -> StepResult:
        """The loss of all query views at all levels."""
        part = views.part or whole(len(views.known))
        if part.first:  # once a step
            self.follow(self.config.momentum)
        keys = {name: self.encode_keys(images, generator, part.in_flight) for name, images in views.keys.items()}
        positives = self.positives(keys)  # {stage: (P, B, D)}
        known = self._ignored(views.known)  # (B, N)
        negatives = self.recent_keys()  # {stage: (N, D)}
        neighbors = self._neighbors(views.known)  # {stage: (k, B, D) and (k, B)}

        tau, chunk = self.config.temperature, self.config.loss_chunk
        terms: dict[tuple[str, int], Tensor] = {}
        metrics: dict[str, Tensor] = {}
        for name, images in views.queries.items():
            query = self.query_encoder(images)  # {stage: (B·V, D)}
            weights = views.weights[name].to(images.device, non_blocking=True)  # (P,) or (P, B)
            for s in self.stages:
                v = len(query[s]) // len(views.known)
                positive = repeated(positives[s], v, dim=1)  # (P, B·V, D)
                ignore = None if known is None else repeated(known, v, dim=0)  # (B·V, N)
                near = None if neighbors is None else Neighbors(*(repeated(each, v, dim=1) for each in neighbors[s]))
                result = info_nce(query[s], positive, weights, negatives[s], tau, ignore, chunk, near)
                terms[name, s] = result.loss.mean()
                metrics[f"loss/stage{s}/{name}"] = terms[name, s].detach()
                if name == "a":  # with its own key, as MoCo logs it
                    own = result.positive[0]  # (B,)
                    metrics[f"accuracy/stage{s}"] = (own > result.hardest).float().mean()
                    metrics[f"positive/stage{s}"] = own.mean()
                    metrics[f"negative/stage{s}"] = query[s].detach().mean(0) @ negatives[s].mean(0)
        loss = total(terms, views.groups, self.config.reduction)

        names = list(keys) if self.config.enqueue == "all" else ["a"]
        fresh = [(keys[name], self.world.all_gather(views.key_ids[name], part.in_flight)) for name in names]
        return StepResult(loss, {"loss": loss.detach(), **metrics}, fresh)

    def _neighbors(self, known: Tensor) -> dict[int, Neighbors] | None:
        """The keys of each anchor's neighbours in the memory, `(B, 1 + k)` ids → keys and weights, at all levels."""
        if not self.config.memory or known.shape[1] == 1:
            return None
        weights = neighbor_weights(known, self.queue.is_empty(), self.config.neighbor_share)  # (k, B)
        return {s: Neighbors(self.queue.keys(s)[known[:, 1:].T], weights) for s in self.stages}

    def _ignored(self, known: Tensor) -> Tensor | None:
        """Which negatives each anchor ignores: `(B, R)` ids of known positives → `(B, N)` bool."""
        if self.config.memory:  # there neighbours are positives and belong in the denominator
            return self.queue.holds(known[:, :1]) | self.queue.is_empty()
        ignored = self.queue.holds(known) if self.config.mask_known else None
        if self.config.empty_queue:
            empty = self.queue.is_empty().expand(len(known), -1)  # (B, N)
            ignored = empty if ignored is None else ignored | empty
        return ignored

    @property
    def memory(self) -> KeyMemory | None:
        return self.queue if isinstance(self.queue, KeyMemory) else None

    @torch.no_grad()
    def remember(self, features: Tensor, ids: Tensor) -> None:
        """Fill the memory with the keys of images `ids` `(n,)`, from their pooled features `(n, F)`."""
        last = self.stages[-1]
        self.queue.enqueue({last: self.key_encoder.heads[str(last)](features)}, ids)

    def after_backward(self, result: StepResult) -> None:
        """Enqueue the new keys; before backward the loss still needs the old ones."""
        for keys, ids in result.fresh:
            self.queue.enqueue(keys, ids)

    def recent_keys(self) -> Embeddings:
        return {s: self.queue.keys(s) for s in self.stages}


def queue_length(config: ContrastConfig, images: int) -> int:
    """The configured length, or by default an eighth of the data set as a power of two, at most half the data set."""
    if config.queue_length is not None:
        return config.queue_length
    power = 1 << max(0, (images // 8).bit_length() - 1)
    return max(1, min(_LONGEST_QUEUE, max(_SHORTEST_QUEUE, power), images // 2))
