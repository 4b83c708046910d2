"""The contrastive loss with several positives per query (METHOD §2)."""

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
        if chunk is None or chunk >= len(negatives):
            negative = _similarity(query, negatives, ignore)  # (B, N)
            pushed, hardest = (
                torch.logsumexp(negative / temperature, dim=1),
                negative.detach().amax(dim=1),
            )  # (B,), (B,)
        else:
            pushed, hardest = _InChunks.apply(query, negatives, temperature, ignore, chunk)
        # −log(e^p / (e^p + e^pushed)) = softplus(pushed − p)
        terms = F.softplus(pushed - positive / temperature)  # (P, B)
        if weights.dim() == 1:
            weights = weights[:, None]  # (P, 1)
        loss = (weights * terms).sum(dim=0)  # (B,)
    return InfoNCE(loss, positive.detach(), hardest)


def _similarity(query: Tensor, negatives: Tensor, ignore: Tensor | None) -> Tensor:
    """`(B, D)`, `(n, D)` → `(B, n)`, −∞ where a negative does not count."""
    similarity = torch.einsum("bd,nd->bn", query, negatives)
    return similarity if ignore is None else similarity.masked_fill(ignore, float("-inf"))


class _InChunks(torch.autograd.Function):
    """logsumexp over the negatives, and their maximum, a chunk at a time; backward makes each chunk again."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, negatives: Tensor, temperature: float, ignore: Tensor | None, chunk: int
    ) -> tuple[Tensor, Tensor]:
        pushed = query.new_full((len(query),), float("-inf"))  # (B,)
        hardest = pushed.clone()  # (B,)
        for part in _parts(len(negatives), chunk):
            similarity = _similarity(query, negatives[part], None if ignore is None else ignore[:, part])  # (B, chunk)
            hardest = torch.maximum(hardest, similarity.amax(dim=1))
            pushed = torch.logaddexp(pushed, torch.logsumexp(similarity / temperature, dim=1))
        ctx.save_for_backward(query, negatives, ignore, pushed)
        ctx.temperature, ctx.chunk = temperature, chunk
        ctx.mark_non_differentiable(hardest)
        return pushed, hardest

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None, None, None, None]:
        query, negatives, ignore, pushed = ctx.saved_tensors
        scale = (gradients[0] / ctx.temperature)[:, None]  # (B, 1)
        query_gradient = torch.zeros_like(query)
        negative_gradient = torch.zeros_like(negatives) if ctx.needs_input_grad[1] else None
        for part in _parts(len(negatives), ctx.chunk):
            share = torch.exp(
                _similarity(query, negatives[part], None) / ctx.temperature - pushed[:, None]
            )  # (B, chunk)
            if ignore is not None:
                share = share.masked_fill(ignore[:, part], 0.0)
            share = share * scale
            query_gradient += share @ negatives[part]
            if negative_gradient is not None:
                negative_gradient[part] = share.T @ query
        return query_gradient, negative_gradient, None, None, None


def _parts(length: int, chunk: int) -> list[slice]:
    return [slice(start, start + chunk) for start in range(0, length, chunk)]
