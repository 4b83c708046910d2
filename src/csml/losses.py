"""The losses with several positives per query: contrastive (METHOD §2), and predictive as in BYOL (METHOD §6)."""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class InfoNCE(NamedTuple):
    """The loss per query and, detached, what people look at beside it; B queries, P positives."""

    loss: Tensor
    """`(B,)`"""
    positive: Tensor
    """`(P, B)` cosine similarity of each query with each of its positives"""
    hardest: Tensor
    """`(B,)` cosine similarity with the most similar negative"""


def multi_positive_info_nce(
    query: Tensor,
    positives: Tensor,
    weights: Tensor,
    negatives: Tensor,
    temperature: float,
    ignore: Tensor | None = None,
    chunk: int | None = None,
) -> Tensor:
    """Weighted sum over positives of −log softmax(positive against the negatives), one positive in each denominator.

    Args:
        query: `(B, D)`, L2-normalised.
        positives: `(P, B, D)`, L2-normalised.
        weights: `(P,)`, or `(P, B)` where they differ from sample to sample.
        negatives: `(N, D)`, L2-normalised, shared by all queries.
        temperature: τ; every similarity is divided by it.
        ignore: `(B, N)` bool, True where a negative does not count for a query.
        chunk: negatives looked at at once, if there are more; memory is then O(B · chunk) instead of O(B · N), for one
            more product in backward.

    Returns:
        The loss of each query, `(B,)`.
    """
    return info_nce(query, positives, weights, negatives, temperature, ignore, chunk).loss


def info_nce(
    query: Tensor,
    positives: Tensor,
    weights: Tensor,
    negatives: Tensor,
    temperature: float,
    ignore: Tensor | None = None,
    chunk: int | None = None,
) -> InfoNCE:
    """`multi_positive_info_nce` together with the similarities it was made of."""
    # In full precision even under autocast: bf16 products are off by up to 0.4 %, and τ makes five times that of it.
    with torch.autocast(query.device.type, enabled=False):
        positive = torch.einsum("bd,pbd->pb", query, positives)  # (P, B)
        # All terms of one query share `pushed`: the pass over the queue is paid once, whatever P.
        pushed, hardest = _Pushed.apply(query, negatives, temperature, ignore, chunk or len(negatives))  # (B,), (B,)
        # −log(e^p / (e^p + e^pushed)) = softplus(pushed − p)
        terms = F.softplus(pushed - positive / temperature)  # (P, B)
        loss = _weighted(terms, weights)  # (B,)
    return InfoNCE(loss, positive.detach(), hardest)


class Predictive(NamedTuple):
    """The loss per query and, detached, the similarities it was made of; B queries, P positives."""

    loss: Tensor
    """`(B,)`"""
    positive: Tensor
    """`(P, B)` cosine similarity of each prediction with each of its positives"""


def predictive(prediction: Tensor, positives: Tensor, weights: Tensor) -> Predictive:
    """Weighted sum over positives of 2 − 2 · cos(prediction, positive).

    Args:
        prediction: `(B, D)`, of any length.
        positives: `(P, B, D)`, L2-normalised.
        weights: `(P,)`, or `(P, B)` where they differ from sample to sample.
    """
    with torch.autocast(prediction.device.type, enabled=False):
        prediction = prediction.to(positives.dtype)
        positive = torch.einsum("bd,pbd->pb", F.normalize(prediction, dim=1), positives)  # (P, B)
        loss = _weighted(2 - 2 * positive, weights)  # (B,)
    return Predictive(loss, positive.detach())


def _weighted(terms: Tensor, weights: Tensor) -> Tensor:
    """`(P, B)`, weights `(P,)` or `(P, B)` → `(B,)`"""
    return ((weights[:, None] if weights.dim() == 1 else weights) * terms).sum(dim=0)


class _Pushed(torch.autograd.Function):
    """logsumexp of the similarities with the negatives over τ, and their maximum, a chunk at a time.

    The gradient is the softmax times the negatives. The softmax of a single chunk is kept for backward; of several
    each is made again, which holds memory at O(B · chunk).
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, negatives: Tensor, temperature: float, ignore: Tensor | None, chunk: int
    ) -> tuple[Tensor, Tensor]:
        parts = _parts(len(negatives), chunk)
        tops, sums = [], []  # per chunk, (B,) each
        for part in parts:
            logits = _logits(query, negatives, temperature, ignore, part)  # (B, chunk)
            top = logits.amax(dim=1)
            # Where every negative is ignored, −∞ − −∞ would be NaN.
            share = logits.sub_(top.clamp(min=torch.finfo(top.dtype).min)[:, None]).exp_()
            tops.append(top)
            sums.append(share.sum(dim=1))
        top, total = torch.stack(tops), torch.stack(sums)  # (chunks, B)
        pushed = torch.logsumexp(top + total.log(), dim=0)  # (B,)
        hardest = top.amax(dim=0) * temperature  # (B,)
        kept = share.div_(total[0].clamp(min=torch.finfo(total.dtype).tiny)[:, None]) if len(parts) == 1 else None
        ctx.save_for_backward(query, negatives, ignore, pushed, kept)
        ctx.temperature, ctx.parts = temperature, parts
        ctx.mark_non_differentiable(hardest)
        return pushed, hardest

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None, None, None, None]:
        query, negatives, ignore, pushed, kept = ctx.saved_tensors
        scale = (gradients[0] / ctx.temperature)[:, None]  # (B, 1)
        query_gradient = torch.zeros_like(query)
        negative_gradient = torch.zeros_like(negatives) if ctx.needs_input_grad[1] else None
        for part in ctx.parts:
            share = kept
            if share is None:
                logits = _logits(query, negatives, ctx.temperature, ignore, part)  # (B, chunk)
                share = logits.sub_(pushed.clamp(min=torch.finfo(pushed.dtype).min)[:, None]).exp_()
            query_gradient.addmm_(share, negatives[part])
            if negative_gradient is not None:
                negative_gradient[part] = share.T @ (query * scale)
        return query_gradient * scale, negative_gradient, None, None, None


def _logits(query: Tensor, negatives: Tensor, temperature: float, ignore: Tensor | None, part: slice) -> Tensor:
    """`(B, D)`, some of `(N, D)` → their similarities over τ `(B, n)`, −∞ where a negative does not count."""
    logits = torch.einsum("bd,nd->bn", query / temperature, negatives[part])
    return logits if ignore is None else logits.masked_fill_(ignore[:, part], -torch.inf)


def _parts(length: int, chunk: int) -> list[slice]:
    return [slice(start, start + chunk) for start in range(0, length, chunk)]
