"""A first, cheap search: fewer dimensions in a smaller type, which leaves a few candidates to be ranked exactly."""

import torch
import torch.nn.functional as F
from torch import Tensor

_SAMPLE = 16_384
"""Rows from which the principal directions are taken."""
_CLIP = 6.0
"""Standard deviations that the largest code stands for; rarer values are cut off."""


class Coarse:
    """Codes of the directions of a database's vectors.

    The ranking of a query q by q · x is that by q · (x − mean), and the difference is worth keeping in few bits: on
    features whose mean cosine is 0.94, as those of an untrained network, the rest is rounding. The codes are the
    principal coordinates of x − mean; the direction of the mean is among them, since queries have much of it. A random
    rotation spreads the variance evenly, so that all coordinates deserve the same step.

    Args:
        basis: `(D, d)`, from `principal_directions`, d ≤ D.
        mean: `(D,)`.
        database: `(N, D)`, of any length and floating type.
    """

    def __init__(self, basis: Tensor, mean: Tensor, database: Tensor) -> None:
        self.type = _code_type(database.device)
        generator = torch.Generator().manual_seed(0)
        rotation = torch.linalg.qr(torch.randn(basis.shape[1], basis.shape[1], generator=generator))[0]
        self.basis = basis @ rotation.to(basis.device)  # (D, d)
        self.codes = torch.empty(len(database), basis.shape[1], dtype=self.type, device=database.device)  # (N, d)
        step: Tensor | None = None
        for start in range(0, len(database), _SAMPLE):
            block = slice(start, start + _SAMPLE)
            coordinates = (F.normalize(database[block].float(), dim=1) - mean) @ self.basis
            if step is None:  # one for all rows: scores of a query must be comparable
                step = _CLIP * coordinates.square().mean().sqrt() / 127
            self.codes[block] = _encode(coordinates, step, self.type)

    def encode_queries(self, queries: Tensor) -> Tensor:
        """`(Q, D)` unit vectors → `(Q, d)` codes; each has its own step, which does not change its ranking."""
        coordinates = queries.float() @ self.basis
        step = coordinates.abs().amax(dim=1, keepdim=True) / 127
        return _encode(coordinates, step.clamp(min=1e-12), self.type)


def principal_directions(database: Tensor) -> tuple[Tensor, Tensor]:
    """Mean `(D,)` and an orthonormal basis `(D, D)` of a sample of `(N, D)`: the mean's direction, then the others in
    the order of their variance."""
    stride = max(1, len(database) // _SAMPLE)
    sample = F.normalize(database[::stride].float(), dim=1)
    mean = sample.mean(dim=0)
    centred = sample - mean
    _, directions = torch.linalg.eigh(centred.T @ centred)  # ascending
    return mean, torch.linalg.qr(torch.cat([mean[:, None], directions.flip(1)[:, :-1]], dim=1))[0]


def _encode(coordinates: Tensor, step: Tensor, kind: torch.dtype) -> Tensor:
    if kind != torch.int8:
        return coordinates.to(kind)
    return (coordinates / step).round_().clamp_(-127, 127).to(kind)


def _code_type(device: torch.device) -> torch.dtype:
    """What multiplies fastest: tensor cores take halves, and CPUs with VNNI have three times the speed for bytes."""
    if device.type == "cuda":
        return torch.float16
    return torch.int8 if device.type == "cpu" and torch.cpu._is_vnni_supported() else torch.float32
