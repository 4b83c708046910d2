"""The contrastive loss with several positives per query (METHOD §2)."""

from typing import NamedTuple

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
) -> Tensor:
    """Weighted sum over positives of −log softmax(positive against the negatives), one positive in each denominator.

    Args:
        query: `(B, D)`, L2-normalised.
        positives: `(P, B, D)`, L2-normalised.
        weights: `(P,)`, or `(P, B)` where they differ from sample to sample.
        negatives: `(N, D)`, L2-normalised, shared by all queries.
        temperature: τ; every similarity is divided by it.
        ignore: `(B, N)` bool, True where a negative does not count for a query.

    Returns:
        The loss of each query, `(B,)`.
    """
    return info_nce(query, positives, weights, negatives, temperature, ignore).loss


def info_nce(
    query: Tensor,
    positives: Tensor,
    weights: Tensor,
    negatives: Tensor,
    temperature: float,
    ignore: Tensor | None = None,
) -> InfoNCE:
    """`multi_positive_info_nce` together with the similarities it was made of."""
    # In full precision even under autocast: bf16 products are off by up to 0.4 %, and τ makes five times that of it.
    with torch.autocast(query.device.type, enabled=False):
        positive = torch.einsum("bd,pbd->pb", query, positives)  # (P, B)
        negative = torch.einsum("bd,nd->bn", query, negatives)  # (B, N)
        if ignore is not None:
            negative = negative.masked_fill(ignore, float("-inf"))
        # All terms of one query share this: the pass over the queue is paid once, whatever P.
        pushed = torch.logsumexp(negative / temperature, dim=1)  # (B,)
        # −log(e^p / (e^p + e^pushed)) = softplus(pushed − p)
        terms = F.softplus(pushed - positive / temperature)  # (P, B)
        if weights.dim() == 1:
            weights = weights[:, None]  # (P, 1)
        loss = (weights * terms).sum(dim=0)  # (B,)
    return InfoNCE(loss, positive.detach(), negative.detach().amax(dim=1))
