"""A search in a database of which every process holds a part: the parts go round, one at a time.

A process keeps its own part and the one that is passing, in whatever type they have; nobody holds all.
"""

import torch
from torch import Tensor

from csml.neighbors.search import merge, nearest, nothing_found, search
from csml.world import World


def search_across(
    queries: Tensor, part: Tensor, k: int, world: World, recall: float = 1.0, exclude: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The k rows of the whole database most similar to each of this process's queries.

    Args:
        queries: `(Q, D)`, of this process.
        part: `(n, D)`, this process's part of the database; its rows are counted after those of the ranks before.
        k: at most the rows of all parts together, less one with `exclude`.
        world: every process of it must call this, with the same k.
        recall: share of the true neighbours that has to be found in each part; so many are then found of the whole.
        exclude: `(Q,)`, a row of the whole database that is never returned for the query.

    Returns:
        indices `(Q, k)` int64 and cosine similarities `(Q, k)` float32, best first.
    """
    own = torch.full((len(queries),), -1, device=queries.device) if exclude is None else exclude
    if world.size == 1:
        return nearest(queries, part, k, exclude) if recall >= 1 else search(queries, part, k, recall, own)
    found = nothing_found(len(queries), k, queries.device)
    start = 0
    for passing in world.parts(part):
        if len(passing) > k:
            indices, similarities = search(queries, passing, k, recall, own - start)
        else:
            indices, similarities = nearest(queries, passing, len(passing))
            similarities.masked_fill_(indices == (own - start)[:, None], -torch.inf)
        merge(found, slice(None), indices + start, similarities)
        start += len(passing)
    return found
