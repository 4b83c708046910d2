"""A key encoder that follows the query encoder, as in MoCo and BYOL."""

import copy

import torch
from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn

from csml.distributed.world import ALONE, World
from csml.methods.framework import Embeddings, Framework
from csml.models.encoder import Encoder


class MomentumFramework(Framework):
    """A framework whose keys come from a moving average of the query encoder.

    Args:
        encoder: f_q; f_k starts as its copy.
        world: the processes that share a batch; all of them see all keys.
    """

    def __init__(self, encoder: Encoder, world: World = ALONE) -> None:
        super().__init__(encoder, world)
        self.key_encoder = copy.deepcopy(encoder).requires_grad_(False)  # f_k

    def encoder(self, role: str) -> Encoder:
        return self.key_encoder if role == "key" else self.query_encoder

    def encoders(self) -> list[Encoder]:
        return [self.query_encoder, self.key_encoder]

    @torch.no_grad()
    def encode_keys(self, images: Tensor, generator: torch.Generator, rows: int) -> Embeddings:
        """This process's images `(B, 3, S, S)` → the keys of all processes `{stage: (rows, D)}`.

        Images are shuffled across processes on the way, so that BatchNorm normalises a key together with
        different images than its query (docs/method.md#batchnorm).
        """
        shuffle = torch.randperm(rows, generator=generator)
        back = shuffle.argsort().to(images.device, non_blocking=True)
        # The key encoder stays in train mode: its running statistics follow its own batches.
        keys = self.key_encoder(self.world.reorder(images, shuffle))
        return {stage: self.world.all_gather(embeddings, rows)[back] for stage, embeddings in keys.items()}

    def positives(self, keys: dict[str, Embeddings]) -> Embeddings:
        """From the keys of all processes, for P views, those of this process's own images: `{stage: (P, B, D)}`."""
        return {
            stage: torch.stack([of_view[stage][self.world.share(len(of_view[stage]))] for of_view in keys.values()])
            for stage in self.stages
        }

    @torch.no_grad()
    def follow(self, momentum: float) -> None:
        """k ← m·k + (1 − m)·q, over weights and heads."""
        ours, theirs = list(self.key_encoder.parameters()), list(self.query_encoder.parameters())
        get_ema_multi_avg_fn(momentum)(ours, theirs, torch.zeros(()))
