"""Compressed features (fewer dimensions, smaller type) for a cheap first search; its candidates are ranked exactly."""

import torch
import torch.nn.functional as F
from torch import Tensor

from csml.search.code_dtype import Codes

_SAMPLE = 16_384
"""Number of rows used to find the principal directions, and number encoded at a time."""
_CLIP = 6.0
"""Range of the codes in standard deviations; larger values are clipped."""


class Coarse:
    """Codes of the L2-normalised rows of a database.

    Ranking by q · x is the same as ranking by q · (x − mean), and only the difference is worth encoding: the features
    of an untrained network have a mean cosine of 0.94, so with few bits per coordinate the common mean would drown
    everything else in rounding errors. The codes are the principal coordinates of x − mean. The direction of the mean
    is one of them, since it is a large component of every query. A random rotation spreads the variance evenly over
    the coordinates, so that one quantisation step fits all of them.

    Args:
        basis: `(D, d)`, from `principal_directions`, d ≤ D.
        mean: `(D,)`.
        database: `(N, D)`, not necessarily normalised, of any floating type.
        kind: the type of the codes.
    """

    def __init__(self, basis: Tensor, mean: Tensor, database: Tensor, kind: Codes) -> None:
        self.kind = kind
        generator = torch.Generator().manual_seed(0)
        rotation = torch.linalg.qr(torch.randn(basis.shape[1], basis.shape[1], generator=generator))[0]
        self.basis = basis @ rotation.to(basis.device)  # (D, d)
        self.codes = torch.empty(len(database), basis.shape[1], dtype=kind.dtype, device=database.device)  # (N, d)
        step: Tensor | None = None
        for start in range(0, len(database), _SAMPLE):
            block = slice(start, start + _SAMPLE)
            coordinates = (F.normalize(database[block].float(), dim=1) - mean) @ self.basis
            if step is None:  # one step for all rows, so that the scores of a query are comparable
                step = _CLIP * coordinates.square().mean().sqrt() / (kind.limit or 1)
            self.codes[block] = _encode(coordinates, step, kind)

    def encode_queries(self, queries: Tensor) -> Tensor:
        """Unit vectors `(Q, D)` → codes `(Q, d)`. Each query has its own step, which does not change its ranking."""
        coordinates = queries.float() @ self.basis
        step = coordinates.abs().amax(dim=1, keepdim=True) / (self.kind.limit or 1)
        return _encode(coordinates, step.clamp(min=1e-12), self.kind)


def principal_directions(database: Tensor) -> tuple[Tensor, Tensor]:
    """Mean `(D,)` and orthonormal basis `(D, D)` of a sample of the database `(N, D)`.

    The first direction is that of the mean; the others are sorted by variance.
    """
    stride = max(1, len(database) // _SAMPLE)
    sample = F.normalize(database[::stride].float(), dim=1)
    mean = sample.mean(dim=0)
    centred = sample - mean
    _, directions = torch.linalg.eigh(centred.T @ centred)  # ascending
    return mean, torch.linalg.qr(torch.cat([mean[:, None], directions.flip(1)[:, :-1]], dim=1))[0]


def _encode(coordinates: Tensor, step: Tensor, kind: Codes) -> Tensor:
    if not kind.limit:
        return coordinates.to(kind.dtype)
    return (coordinates / step).round_().clamp_(-kind.limit, kind.limit).to(kind.dtype)
