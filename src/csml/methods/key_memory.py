"""A memory of the newest key of every image, for the contrastive loss or to search neighbours in."""

import torch
from torch import Tensor, nn


class KeyMemory(nn.Module):
    """Slot i holds the newest key of image i. It can replace a `KeyQueue`.

    Args:
        dims: D of each level.
        images: N.
        dtype: of the keys; half precision is enough to search in them.
    """

    filled: Tensor

    def __init__(self, dims: dict[int, int], images: int, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.length = images
        for stage, dim in dims.items():
            self.register_buffer(f"keys_{stage}", torch.zeros(images, dim, dtype=dtype))  # (N, D)
        self.register_buffer("filled", torch.zeros(images, dtype=torch.bool))  # (N,)

    def keys(self, stage: int) -> Tensor:
        """`(N, D)`"""
        return self.get_buffer(f"keys_{stage}")

    @torch.no_grad()
    def enqueue(self, keys: dict[int, Tensor], ids: Tensor) -> None:
        """Write the keys `{stage: (B, D)}` of the images `ids` `(B,)` over their older ones."""
        self.filled.index_fill_(0, ids, True)
        for stage, embeddings in keys.items():
            self.keys(stage).index_copy_(0, ids, embeddings.to(self.keys(stage).dtype))

    def is_empty(self) -> Tensor:
        """`(N,)` bool: no key of the image is known yet."""
        return ~self.filled

    def holds(self, known: Tensor) -> Tensor:
        """Which slots hold a key of one of the images `known` `(B, R)`: `(B, N)` bool."""
        found = torch.zeros(len(known), self.length, dtype=torch.bool, device=known.device)
        return found.scatter_(1, known, True)


def neighbor_weights(known: Tensor, empty: Tensor, share: float) -> Tensor:
    """How much each neighbour's key counts as a positive.

    Args:
        known: `(B, 1 + k)`: the id of the anchor, then its neighbour set Ω, padded with its own id.
        empty: `(N,)` bool: images whose key is not known yet.
        share: share of the loss for the neighbours of an anchor that has any.

    Returns:
        `(k, B)`; each column sums to `share`, or to 0 if the anchor has no neighbour in the memory.
    """
    own, neighbors = known[:, :1], known[:, 1:]  # (B, 1), (B, k)
    real = ((neighbors != own) & ~empty[neighbors]).float()  # (B, k)
    return (share * real / real.sum(dim=1, keepdim=True).clamp(min=1)).T
