"""Exact cosine search in blocks, so that memory does not grow with N²."""

import torch
import torch.nn.functional as F
from torch import Tensor

_BLOCK_ENTRIES = 1 << 25
"""Similarities held at once: 128 MB."""


def nearest(queries: Tensor, database: Tensor, k: int, exclude: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The k database rows most similar to each query.

    Args:
        queries: `(Q, D)`.
        database: `(N, D)`.
        k: number of neighbours, at most N (N − 1 with `exclude`).
        exclude: `(Q,)`, a database row that is never returned for the query.

    Returns:
        indices `(Q, k)` int64 and cosine similarities `(Q, k)` float32, best first.
    """
    available = len(database) - (exclude is not None)
    if not 0 <= k <= available:
        raise ValueError(f"k = {k} neighbours were asked for, but there are only {available}")
    same = queries is database
    queries = F.normalize(queries.float(), dim=1)
    database = queries if same else F.normalize(database.float(), dim=1)
    rows = max(1, _BLOCK_ENTRIES // max(1, len(database)))
    indices = torch.empty(len(queries), k, dtype=torch.long, device=queries.device)
    similarities = torch.empty(len(queries), k, device=queries.device)
    for start in range(0, len(queries), rows):
        block = slice(start, start + rows)
        similarity = torch.einsum("qd,nd->qn", queries[block], database)  # (rows, N)
        if exclude is not None:
            similarity.scatter_(1, exclude[block, None], float("-inf"))
        similarities[block], indices[block] = similarity.topk(k, dim=1)
    return indices, similarities


def top_k(features: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k nearest neighbours of every row among the other rows, by cosine.

    A row is excluded by its index, not as "the first hit": where duplicates exist, they are its neighbours.

    Args:
        features: `(N, D)`.
        k: less than N.

    Returns:
        indices `(N, k)` int64 and similarities `(N, k)` float32, best first.
    """
    return nearest(features, features, k, exclude=torch.arange(len(features), device=features.device))
