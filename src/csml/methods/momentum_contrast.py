"""Momentum contrast with any number of query and key views at any number of levels (METHOD §2, §3, §7)."""

import copy
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from csml.config.schema import ContrastConfig
from csml.losses import info_nce
from csml.methods.queue import KeyQueue
from csml.models.encoder import Encoder
from csml.models.split_batchnorm import split_batchnorm
from csml.views.recipe import Views


class StepResult(NamedTuple):
    loss: Tensor
    """`()`, to be minimised"""
    metrics: dict[str, Tensor]
    """name → `()`, detached, left on the device"""
    entering: list[tuple[dict[int, Tensor], Tensor]]
    """what `after_backward` will remember: keys `{stage: (B, D)}` and ids `(B,)`"""


class MomentumContrast(nn.Module):
    """MoCo's two encoders and queue. MoCo v2 and CsMl differ only in the views and stages they are given."""

    def __init__(self, encoder: Encoder, queue_length: int, dim: int, config: ContrastConfig) -> None:
        super().__init__()
        self.config = config
        self.stages = encoder.stages
        if config.bn_splits > 1:
            split_batchnorm(encoder, config.bn_splits)
        self.query_encoder = encoder  # f_q
        self.key_encoder = copy.deepcopy(encoder).requires_grad_(False)  # f_k
        self.queue = KeyQueue(encoder.stages, queue_length, dim)
        self._average = get_ema_multi_avg_fn(config.momentum)

    def forward(self, views: Views, generator: torch.Generator) -> StepResult:
        """The loss of all query views at all levels."""
        self._update_key_encoder()
        keys = {name: self._encode_keys(images, generator) for name, images in views.keys.items()}
        ignore = self.queue.holds(views.known) if self.config.mask_known else None  # (B, N)
        positives = {s: torch.stack([k[s] for k in keys.values()]) for s in self.stages}  # {stage: (P, B, D)}
        negatives = {s: self.queue.keys(s) for s in self.stages}  # {stage: (N, D)}

        tau = self.config.temperature
        terms: list[Tensor] = []
        metrics: dict[str, Tensor] = {}
        for name, images in views.queries.items():
            query = self.query_encoder(images)  # {stage: (B, D)}
            weights = views.weights[name].to(images.device, non_blocking=True)  # (P,) or (P, B)
            for s in self.stages:
                result = info_nce(query[s], positives[s], weights, negatives[s], tau, ignore, self.config.loss_chunk)
                terms.append(result.loss.mean())
                metrics[f"loss/stage{s}/{name}"] = terms[-1].detach()
                if name == "a":  # beside its own key: what MoCo's logs show
                    own = result.positive[0]  # (B,)
                    metrics[f"accuracy/stage{s}"] = (own > result.hardest).float().mean()
                    metrics[f"positive/stage{s}"] = own.mean()
                    metrics[f"negative/stage{s}"] = query[s].detach().mean(0) @ negatives[s].mean(0)
        # Levels are summed either way; "mean" is over the query groups.
        loss = torch.stack(terms).sum()
        if self.config.reduction == "mean":
            loss = loss / len(views.queries)

        names = list(keys) if self.config.enqueue == "all" else ["a"]
        entering = [(keys[name], views.key_ids[name]) for name in names]
        return StepResult(loss, {"loss": loss.detach(), **metrics}, entering)

    def after_backward(self, result: StepResult) -> None:
        """Let the new keys into the queue; not before backward, which still needs the old ones."""
        for keys, ids in result.entering:
            self.queue.enqueue(keys, ids)

    @torch.no_grad()
    def _encode_keys(self, images: Tensor, generator: torch.Generator) -> dict[int, Tensor]:
        """`(B, 3, S, S)` → `{stage: (B, D)}`; the batch is shuffled on the way so that BatchNorm's sub-batches hold
        other company for a key than for its query."""
        shuffle = torch.randperm(len(images), generator=generator)
        back = shuffle.argsort().to(images.device, non_blocking=True)
        shuffle = shuffle.to(images.device, non_blocking=True)
        # The key encoder stays in train mode: its running statistics follow its own batches.
        return {stage: keys[back] for stage, keys in self.key_encoder(images[shuffle]).items()}

    @torch.no_grad()
    def _update_key_encoder(self) -> None:
        """k ← m·k + (1 − m)·q, over weights and heads."""
        ours, theirs = list(self.key_encoder.parameters()), list(self.query_encoder.parameters())
        self._average(ours, theirs, torch.zeros(()))
