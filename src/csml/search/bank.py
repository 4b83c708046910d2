"""The newest key of every training image: the neighbour set Ω can then be searched without a pass over the data."""

import torch
from torch import Tensor


class OnlineBank:
    """Keys of N images in half precision; a key is at most one epoch old.

    Args:
        images: N.
        dim: D.
        device: the training device, on which the bank takes N · D · 2 bytes.
    """

    def __init__(self, images: int, dim: int, device: torch.device) -> None:
        self.keys = torch.zeros(images, dim, dtype=torch.float16, device=device)  # (N, D)
        self.seen = torch.zeros(images, dtype=torch.bool, device=device)  # (N,)

    def add(self, keys: Tensor, ids: Tensor) -> None:
        """Store keys `(B, D)` of the images `ids` `(B,)`, both on the device."""
        self.keys[ids] = keys.to(torch.float16)
        self.seen[ids] = True

    def state_dict(self) -> dict[str, Tensor]:
        return {"keys": self.keys, "seen": self.seen}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.keys.copy_(state["keys"])
        self.seen.copy_(state["seen"])
