"""The queue of past keys that serve as negatives: per slot one embedding per level, and the id of its image."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

EMPTY = -1
"""The id of a slot that still holds a random vector."""


class KeyQueue(nn.Module):
    """A ring of `length` slots that takes batches of any size.

    Args:
        dims: D of each level; slot i holds the same image at every level.
        length: N.
    """

    ids: Tensor
    cursor: Tensor

    def __init__(self, dims: dict[int, int], length: int) -> None:
        super().__init__()
        self.length = length
        for stage, dim in dims.items():
            self.register_buffer(f"keys_{stage}", F.normalize(torch.randn(length, dim), dim=1))  # (N, D)
        self.register_buffer("ids", torch.full((length,), EMPTY))  # (N,)
        self.register_buffer("cursor", torch.zeros((), dtype=torch.long))

    def keys(self, stage: int) -> Tensor:
        """`(N, D)`"""
        return self.get_buffer(f"keys_{stage}")

    @torch.no_grad()
    def enqueue(self, keys: dict[int, Tensor], ids: Tensor) -> None:
        """Write the keys `{stage: (B, D)}` and their ids `(B,)` into the next slots, over the oldest ones."""
        newest = slice(-self.length, None)  # of a batch longer than the queue, only the end fits
        ids = ids[newest]
        slots = (self.cursor + torch.arange(len(ids), device=ids.device)) % self.length  # (B,), kept on the device
        self.ids.index_copy_(0, slots, ids)
        for stage, embeddings in keys.items():
            self.keys(stage).index_copy_(0, slots, embeddings[newest].to(self.keys(stage).dtype))
        self.cursor.copy_((self.cursor + len(ids)) % self.length)

    def is_empty(self) -> Tensor:
        """`(N,)` bool: the slot has not been written yet."""
        return self.ids == EMPTY

    def holds(self, known: Tensor) -> Tensor:
        """Which slots hold a key of a known positive of the anchor: `(B, R)` ids → `(B, N)` bool."""
        found = torch.zeros(len(known), self.length, dtype=torch.bool, device=known.device)
        for column in known.unbind(dim=1):
            found |= self.ids[None] == column[:, None]
        return found
