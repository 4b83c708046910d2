"""Mixtures of anchor and neighbour: CutMix as in the paper, and MixUp for comparison (docs/method.md#views)."""

import torch
from torch import Tensor

from csml.distributed.world import Part


def cutmix(
    anchor: Tensor,
    neighbor: Tensor,
    alpha: float,
    generator: torch.Generator | None = None,
    per_sample: bool = False,
    part: Part | None = None,
) -> tuple[Tensor, Tensor]:
    """Paste a box of `neighbor` into `anchor`.

    Args:
        anchor: `(B, C, H, W)`.
        neighbor: `(B, C, H, W)`, mixed with the anchor in the same row.
        alpha: λ is drawn from Beta(α, α); the box covers 1 − λ of the area before it is clipped at the border.
        generator: CPU generator of the random numbers.
        per_sample: one box per sample instead of one for the batch.
        part: if the rows are only part of a batch. The boxes of the whole batch are drawn.

    Returns:
        The mixed images `(B, C, H, W)` and λ, the share of the area that still shows the anchor: `()`, or `(B,)`
        with `per_sample`.
    """
    batch, _, height, width = anchor.shape
    start, total = (part.start, part.total) if part else (0, batch)
    lam = _beta(alpha, total if per_sample else 1, generator)  # (boxes,)
    side = torch.sqrt(1 - lam)
    spans = (*_span(height, side, generator), *_span(width, side, generator))
    own = slice(start, start + batch) if per_sample else slice(None)
    top, bottom, left, right = (edge[own] for edge in spans)  # (boxes,) each
    y, x = torch.arange(height)[None, :, None], torch.arange(width)[None, None, :]
    inside_y = (y >= top[:, None, None]) & (y < bottom[:, None, None])  # (boxes, H, 1)
    inside_x = (x >= left[:, None, None]) & (x < right[:, None, None])  # (boxes, 1, W)
    pasted = (inside_y & inside_x)[:, None].to(anchor.device, non_blocking=True)  # (boxes, 1, H, W)
    mixed = torch.where(pasted, neighbor, anchor)  # (B, C, H, W)
    # λ is the share after clipping, not the number that was drawn.
    area = ((bottom - top) * (right - left)).double()
    share = (1 - area / (height * width)).float().to(anchor.device, non_blocking=True)  # (boxes,)
    return mixed, share if per_sample else share[0]


def mixup(
    anchor: Tensor,
    neighbor: Tensor,
    alpha: float,
    generator: torch.Generator | None = None,
    per_sample: bool = False,
    part: Part | None = None,
) -> tuple[Tensor, Tensor]:
    """Blend λ · anchor + (1 − λ) · neighbor with λ drawn from Beta(α, α); same arguments and result as `cutmix`."""
    start, total = (part.start, part.total) if part else (0, len(anchor))
    lam = _beta(alpha, total if per_sample else 1, generator).to(anchor.dtype)
    lam = lam[start : start + len(anchor)].to(anchor.device, non_blocking=True) if per_sample else lam.to(anchor.device)
    mixed = torch.lerp(neighbor, anchor, lam[:, None, None, None])  # (B, C, H, W)
    return mixed, lam if per_sample else lam[0]


def _beta(alpha: float, count: int, generator: torch.Generator | None) -> Tensor:
    """`(count,)` numbers from Beta(α, α), float64, on the CPU."""
    shape = torch.full((2, count), float(alpha), dtype=torch.float64)
    gamma = torch._standard_gamma(shape, generator=generator)  # (2, count); γ₀ / (γ₀ + γ₁) is Beta(α, α)
    return gamma[0] / gamma.sum(dim=0).clamp(min=1e-300)


def _span(length: int, share: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """Start and end of a segment `share` × `length` long, with a uniformly drawn centre, clipped to [0, length]."""
    half = (share * length).long() // 2
    centre = torch.randint(length, share.shape, generator=generator)
    return (centre - half).clamp(min=0), (centre + half).clamp(max=length)
