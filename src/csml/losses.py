"""Losses with several positives per query: contrastive (docs/method.md#loss) and predictive (docs/method.md#byol)."""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class InfoNCE(NamedTuple):
    """The loss of each query and, detached, the similarities behind it; B queries, P positives."""

    loss: Tensor
    """`(B,)`"""
    positive: Tensor
    """`(P, B)` cosine similarity of each query with each of its positives"""
    hardest: Tensor
    """`(B,)` cosine similarity with the most similar negative"""


class Neighbors(NamedTuple):
    """Keys of k neighbours of each query, which are also among the negatives, and their weights."""

    keys: Tensor
    """`(k, B, D)`"""
    weights: Tensor
    """`(k, B)`"""


def multi_positive_info_nce(
    query: Tensor,
    positives: Tensor,
    weights: Tensor,
    negatives: Tensor,
    temperature: float,
    ignore: Tensor | None = None,
    chunk: int | None = None,
) -> Tensor:
    """Weighted sum over positives of −log softmax(positive against the negatives), with one positive per denominator.

    Args:
        query: `(B, D)`, L2-normalised.
        positives: `(P, B, D)`, L2-normalised.
        weights: `(P,)`, or `(P, B)` if they differ between samples.
        negatives: `(N, D)`, L2-normalised, shared by all queries.
        temperature: τ, which divides every similarity.
        ignore: `(B, N)` bool, True where a negative is left out for a query.
        chunk: number of negatives processed at a time. Memory is then O(B · chunk) instead of O(B · N), at the price
            of one more matrix product in backward.

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
    neighbors: Neighbors | None = None,
) -> InfoNCE:
    """`multi_positive_info_nce` with the similarities behind it.

    `neighbors` are further positives that are already among the negatives: their terms are −log softmax(neighbour
    against the first positive and the negatives), and their weight is taken from the other positives.
    """
    # Full precision even under autocast: the error of bf16 products is up to 0.4 %, and dividing by τ multiplies it.
    with torch.autocast(query.device.type, enabled=False):
        positive = torch.einsum("bd,pbd->pb", query, positives)  # (P, B)
        # All P terms of a query share `negative`, so the queue is read once whatever P is.
        negative, hardest = _NegativeLogSumExp.apply(query, negatives, temperature, ignore, chunk or len(negatives))
        # −log(e^p / (e^p + e^negative)) = softplus(negative − p)
        terms = F.softplus(negative - positive / temperature)  # (P, B); negative and hardest are (B,)
        loss = _weighted(terms, weights)  # (B,)
        if neighbors is not None:
            everything = torch.logaddexp(negative, positive[0] / temperature)  # (B,)
            similarity = torch.einsum("bd,kbd->kb", query, neighbors.keys)  # (k, B)
            own_share = 1 - neighbors.weights.sum(dim=0)  # (B,)
            loss = own_share * loss + _weighted(everything - similarity / temperature, neighbors.weights)
    return InfoNCE(loss, positive.detach(), hardest)


class Predictive(NamedTuple):
    """The loss of each query and, detached, the similarities behind it; B queries, P positives."""

    loss: Tensor
    """`(B,)`"""
    positive: Tensor
    """`(P, B)` cosine similarity of each prediction with each of its positives"""


def predictive(prediction: Tensor, positives: Tensor, weights: Tensor) -> Predictive:
    """Weighted sum over positives of 2 − 2 · cos(prediction, positive).

    Args:
        prediction: `(B, D)`, normalised here.
        positives: `(P, B, D)`, L2-normalised.
        weights: `(P,)`, or `(P, B)` if they differ between samples.
    """
    with torch.autocast(prediction.device.type, enabled=False):
        prediction = prediction.to(positives.dtype)
        positive = torch.einsum("bd,pbd->pb", F.normalize(prediction, dim=1), positives)  # (P, B)
        loss = _weighted(2 - 2 * positive, weights)  # (B,)
    return Predictive(loss, positive.detach())


def _weighted(terms: Tensor, weights: Tensor) -> Tensor:
    """Terms `(P, B)`, weights `(P,)` or `(P, B)` → weighted sum `(B,)`."""
    return ((weights[:, None] if weights.dim() == 1 else weights) * terms).sum(dim=0)


class _NegativeLogSumExp(torch.autograd.Function):
    """logsumexp of (similarity / τ) over the negatives, and the largest similarity, computed chunk by chunk.

    The gradient is softmax · negatives. With one chunk, its softmax is kept for backward. With several, each is
    computed again, which keeps memory at O(B · chunk).
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, negatives: Tensor, temperature: float, ignore: Tensor | None, chunk: int
    ) -> tuple[Tensor, Tensor]:
        chunks = _chunks(len(negatives), chunk)
        tops, sums = [], []  # for each chunk, (B,) each
        for columns in chunks:
            logits = _logits(query, negatives, temperature, ignore, columns)  # (B, chunk)
            top = logits.amax(dim=1)
            # If every negative is ignored, top is −∞, and −∞ − −∞ would be NaN.
            share = logits.sub_(top.clamp(min=torch.finfo(top.dtype).min)[:, None]).exp_()
            tops.append(top)
            sums.append(share.sum(dim=1))
        top, total = torch.stack(tops), torch.stack(sums)  # (chunks, B)
        negative = torch.logsumexp(top + total.log(), dim=0)  # (B,)
        hardest = top.amax(dim=0) * temperature  # (B,)
        kept = share.div_(total[0].clamp(min=torch.finfo(total.dtype).tiny)[:, None]) if len(chunks) == 1 else None
        ctx.save_for_backward(query, negatives, ignore, negative, kept)
        ctx.temperature, ctx.chunks = temperature, chunks
        ctx.mark_non_differentiable(hardest)
        return negative, hardest

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None, None, None, None]:
        query, negatives, ignore, negative, kept = ctx.saved_tensors
        scale = (gradients[0] / ctx.temperature)[:, None]  # (B, 1)
        query_gradient = torch.zeros_like(query)
        negative_gradient = torch.zeros_like(negatives) if ctx.needs_input_grad[1] else None
        for columns in ctx.chunks:
            share = kept
            if share is None:
                logits = _logits(query, negatives, ctx.temperature, ignore, columns)  # (B, chunk)
                share = logits.sub_(negative.clamp(min=torch.finfo(negative.dtype).min)[:, None]).exp_()
            query_gradient.addmm_(share, negatives[columns])
            if negative_gradient is not None:
                negative_gradient[columns] = share.T @ (query * scale)
        return query_gradient * scale, negative_gradient, None, None, None


def _logits(query: Tensor, negatives: Tensor, temperature: float, ignore: Tensor | None, columns: slice) -> Tensor:
    """Similarity / τ of queries `(B, D)` with n = `columns` of the negatives `(N, D)`: `(B, n)`, −∞ where ignored."""
    logits = torch.einsum("bd,nd->bn", query / temperature, negatives[columns])
    return logits if ignore is None else logits.masked_fill_(ignore[:, columns], -torch.inf)


def _chunks(length: int, chunk: int) -> list[slice]:
    return [slice(start, start + chunk) for start in range(0, length, chunk)]
