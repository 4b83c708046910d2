"""Top-k columns of each row of a matrix product that does not fit into memory: tile by tile, maxima of groups first."""

import torch
from torch import Tensor

_TILE = 8192
"""Database rows per tile; with `_LEAST_ROWS` queries the scores of a tile fit into the cache."""
_LEAST_ROWS, _MOST_ROWS = 128, 512
"""Queries per block."""
_ENTRIES = 1 << 25
"""Scores held at a time: 128 MB, or what `_LEAST_ROWS` queries need if that is more."""
_GROUP = 64
"""Adjacent columns per group."""


def blocks(queries: int, database: int) -> list[slice]:
    """Blocks of queries; pass one at a time to `best_columns` to bound its memory."""
    rows = min(_MOST_ROWS, max(_LEAST_ROWS, _ENTRIES // max(1, database)))
    return [slice(start, min(start + rows, queries)) for start in range(0, queries, rows)]


def best_columns(queries: Tensor, database: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest entries of each row of queries · databaseᵀ.

    Computes the maximum of each group first, which is a third of the work of a top-k over all scores. The result is
    exact: the k best columns lie in the k groups with the largest maxima.

    Args:
        queries: `(Q, D)`, float or int8.
        database: `(N, D)`, of the same type.
        k: at most N.

    Returns:
        scores `(Q, k)`, float32 or int32, and columns `(Q, k)` int64, best first.
    """
    rows, width = len(queries), min(_TILE, -(-len(database) // _GROUP) * _GROUP)
    tiles = -(-len(database) // width)
    kind = torch.int32 if queries.dtype == torch.int8 else queries.dtype
    lowest = torch.iinfo(kind).min if kind == torch.int32 else -torch.inf
    scores = torch.empty(tiles, rows, width // _GROUP, _GROUP, dtype=kind, device=queries.device)  # (T, Q, W/64, 64)
    maxima = torch.empty(rows, tiles, width // _GROUP, dtype=kind, device=queries.device)  # (Q, T, W/64)
    for t in range(tiles):
        tile = database[t * width : (t + 1) * width]
        if len(tile) < width:
            scores[t].fill_(lowest)
        _multiply(queries, tile, scores[t].view(rows, width))
        torch.amax(scores[t], dim=2, out=maxima[:, t])
    groups = maxima.flatten(1)  # (Q, G)
    chosen = groups.topk(min(k, groups.shape[1]), dim=1, sorted=False).indices  # (Q, g)
    row = torch.arange(rows, device=chosen.device)[:, None]
    values = scores[chosen // (width // _GROUP), row, chosen % (width // _GROUP)].flatten(1)  # (Q, 64·g)
    best, place = values.topk(k, dim=1)
    return best, chosen.gather(1, place // _GROUP) * _GROUP + place % _GROUP


def _multiply(queries: Tensor, tile: Tensor, out: Tensor) -> None:
    """Write `(Q, D)` · `(n, D)`ᵀ into the first n columns of `out` `(Q, W)`."""
    if len(tile) == out.shape[1]:
        torch._int_mm(queries, tile.T, out=out) if queries.dtype == torch.int8 else torch.mm(queries, tile.T, out=out)
    else:  # the last tile
        product = torch._int_mm(queries, tile.T) if queries.dtype == torch.int8 else queries @ tile.T
        out[:, : len(tile)] = product
