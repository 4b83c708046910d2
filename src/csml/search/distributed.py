"""Nearest-neighbour search in a database that is distributed over processes.

The shares of the database are broadcast one at a time. A process holds its own share and the current one, never the
whole database.
"""

import torch
from torch import Tensor

from csml.distributed.world import World
from csml.search.nearest_neighbors import empty_result, merge, nearest, search


def distributed_search(
    queries: Tensor, share: Tensor, k: int, world: World, recall: float = 1.0, exclude: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Find the k rows of the whole database that are most similar to each query of this process.

    Args:
        queries: `(Q, D)`, those of this process.
        share: `(n, D)`, this process's share of the database. Rows are numbered over all shares, in rank order.
        k: at most the rows of the whole database; one less with `exclude`.
        world: all its processes must call this function, with the same k.
        recall: minimum share of the true neighbours that is found in each share, and thus in the whole database.
        exclude: `(Q,)`, for each query a row of the whole database that is never returned.

    Returns:
        indices `(Q, k)` int64 and cosine similarities `(Q, k)` float32, best first.
    """
    own = torch.full((len(queries),), -1, device=queries.device) if exclude is None else exclude
    if world.size == 1:
        return nearest(queries, share, k, exclude) if recall >= 1 else search(queries, share, k, recall, own)
    found = empty_result(len(queries), k, queries.device)
    start = 0
    for current in world.broadcast_each(share):
        if len(current) > k:
            indices, similarities = search(queries, current, k, recall, own - start)
        else:
            indices, similarities = nearest(queries, current, len(current))
            similarities.masked_fill_(indices == (own - start)[:, None], -torch.inf)
        merge(found, slice(None), indices + start, similarities)
        start += len(current)
    return found
