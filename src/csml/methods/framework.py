"""What every framework here has: a query encoder that learns, a key encoder that follows it, and the step's result."""

import copy
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from csml.models.encoder import Encoder
from csml.world import ALONE, World

Embeddings = dict[int, Tensor]
"""`{stage: (B, D)}`; keys are L2-normalised."""


class StepResult(NamedTuple):
    loss: Tensor
    """`()`, to be minimised"""
    metrics: dict[str, Tensor]
    """name → `()`, detached, left on the device"""
    fresh: list[tuple[Embeddings, Tensor]]
    """new keys with the ids `(B,)` of their images, the anchors' first: for a queue, or for the online bank"""


class Framework(nn.Module):
    """Two encoders. A subclass says in `forward` how queries are pulled to keys; it never sees how views were made.

    Args:
        encoder: f_q; f_k starts as its copy.
        world: the processes that share a batch; all of them see all keys.
    """

    chance: float
    """loss of one query by a network that knows nothing"""
    progress: float = 0.0
    """share of the run that is done, for what changes over it; set before every step"""

    def __init__(self, encoder: Encoder, world: World = ALONE) -> None:
        super().__init__()
        self.world = world
        self.stages = encoder.stages
        self.query_encoder = encoder  # f_q
        self.key_encoder = copy.deepcopy(encoder).requires_grad_(False)  # f_k

    def after_backward(self, result: StepResult) -> None:
        """Whatever must wait until the gradient has been taken."""

    def recent_keys(self) -> Embeddings:
        """Keys of the last steps, for statistics."""
        raise NotImplementedError

    def query(self, images: Tensor) -> Embeddings:
        """What is compared with the keys: `(B, 3, S, S)` → `{stage: (B, D)}`, with gradient."""
        return self.query_encoder(images)

    @torch.no_grad()
    def encode_keys(self, images: Tensor, generator: torch.Generator, total: int) -> Embeddings:
        """This process's images `(B, 3, S, S)` → the keys of all processes `{stage: (total, D)}`.

        All are shuffled on the way, across processes, so that BatchNorm's sub-batches hold other company for a key
        than for its query.
        """
        shuffle = torch.randperm(total, generator=generator)
        back = shuffle.argsort().to(images.device, non_blocking=True)
        # The key encoder stays in train mode: its running statistics follow its own batches.
        keys = self.key_encoder(self.world.reorder(images, shuffle))
        return {stage: self.world.gather(embeddings, total)[back] for stage, embeddings in keys.items()}

    def mine(self, keys: dict[str, Embeddings], stage: int) -> Tensor:
        """Of P views' keys of all processes, those of this process's own images at one stage: `(P, B, D)`."""
        return torch.stack([of_view[stage][self.world.share(len(of_view[stage]))] for of_view in keys.values()])

    @torch.no_grad()
    def follow(self, momentum: float) -> None:
        """k ← m·k + (1 − m)·q, over weights and heads."""
        ours, theirs = list(self.key_encoder.parameters()), list(self.query_encoder.parameters())
        get_ema_multi_avg_fn(momentum)(ours, theirs, torch.zeros(()))


def repeated(values: Tensor, views: int, dim: int) -> Tensor:
    """What belongs to B anchors, for V views of each, row b·V + v: B → B·V along `dim`."""
    return values if views == 1 else values.repeat_interleave(views, dim=dim)


def total(terms: dict[tuple[str, int], Tensor], groups: dict[str, int], reduction: str) -> Tensor:
    """The loss of `{(query, stage): ()}`: levels are summed either way; "mean" is over the query groups."""
    loss = torch.stack([groups[query] * term for (query, _), term in terms.items()]).sum()
    return loss / sum(groups.values()) if reduction == "mean" else loss
