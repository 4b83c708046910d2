"""Cosine nearest neighbours in bounded memory: exact, or approximate with a recall that is measured on the data."""

import logging

import torch
import torch.nn.functional as F
from torch import Tensor

from csml.progress import watched
from csml.search.coarse import Coarse, principal_directions
from csml.search.code_dtype import codes_for
from csml.search.tiled_top_k import best_columns, blocks

log = logging.getLogger("csml")

SMALL = 16_384
"""Up to this many rows, exact search is faster than search with candidates."""
_PROBES = 512
"""Queries on which the recall is measured."""
_DIMS = (64, 128, 256, 512, 1024, 2048)
_MOST_CANDIDATES = 128
_RESERVE = 0.2
"""Safety margin, as a share of the misses that `recall` allows: the probes are only a sample of the queries."""
_RANKED_AT_ONCE = 32
"""Queries whose candidates are ranked at a time: 32 MB for 128 candidates of 2048 dimensions."""


def nearest(queries: Tensor, database: Tensor, k: int, exclude: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Find the k database rows most similar to each query, exactly, in float32.

    Blocks of the database are converted one at a time, so there is no float32 copy of the whole.

    Args:
        queries: `(Q, D)`.
        database: `(N, D)`.
        k: number of neighbours, at most N (N − 1 with `exclude`).
        exclude: `(Q,)`, for each query a database row that is never returned; an index out of range excludes nothing.

    Returns:
        indices `(Q, k)` int64 and cosine similarities `(Q, k)` float32, best first.
    """
    available = len(database) - (exclude is not None)
    if not 0 <= k <= available:
        raise ValueError(f"k = {k} neighbours requested, but only {available} are available")
    wanted = k + (exclude is not None)
    found = empty_result(len(queries), wanted, queries.device)
    for start in range(0, len(database), SMALL):
        block = F.normalize(database[start : start + SMALL].float(), dim=1)  # (n, D)
        for rows in blocks(len(queries), len(block)):
            query = F.normalize(queries[rows].float(), dim=1)
            similarity, columns = best_columns(query, block, min(wanted, len(block)))
            merge(found, rows, columns + start, similarity)
    return found if exclude is None else _drop(exclude, *found)


def empty_result(queries: int, k: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Indices and similarities `(Q, k)` before a search, to be filled with `merge`."""
    return torch.full((queries, k), -1, device=device), torch.full((queries, k), -torch.inf, device=device)


def merge(found: tuple[Tensor, Tensor], rows: slice, indices: Tensor, similarities: Tensor) -> None:
    """Merge n more candidates `(q, n)` of some rows into the best k `found` so far (`(Q, k)` each), in place."""
    candidates = torch.cat([found[1][rows], similarities], dim=1)
    best, place = candidates.topk(found[1].shape[1], dim=1)
    found[0][rows] = torch.cat([found[0][rows], indices], dim=1).gather(1, place)
    found[1][rows] = best


def top_k(features: Tensor, k: int, recall: float = 1.0) -> tuple[Tensor, Tensor]:
    """The k nearest neighbours of every row among the other rows, by cosine similarity.

    A row is excluded by its index, not as the first hit, so exact duplicates are neighbours. See `search` for the
    arguments and the result.
    """
    return search(features, features, k, recall, torch.arange(len(features), device=features.device))


def search(queries: Tensor, database: Tensor, k: int, recall: float, exclude: Tensor) -> tuple[Tensor, Tensor]:
    """Find the k database rows most similar to each query, exactly or approximately.

    Args:
        queries, database: `(Q, D)`, `(N, D)`, of any floating type.
        k: less than N.
        recall: minimum share of the true neighbours that is found; 1 means an exact search in float32.
        exclude: as in `nearest`.

    Returns:
        indices `(Q, k)` int64 and similarities `(Q, k)` float32, best first.
    """
    if recall >= 1 or len(database) <= SMALL or k == 0 or not len(queries):
        return nearest(queries, database, k, exclude)
    probes = torch.arange(len(queries), device=queries.device)[:: max(1, len(queries) // _PROBES)][:_PROBES]
    truth = nearest(queries[probes], database, k, exclude[probes])[0]
    coarse, candidates = _cheapest_plan(database, k, recall, queries[probes], exclude[probes], truth)
    # Block by block, to avoid a float32 copy of the whole database.
    norms = torch.cat([torch.linalg.vector_norm(block.float(), dim=1) for block in database.split(SMALL)])  # (N,)
    inverse_norms = 1 / norms.clamp(min=1e-12)
    indices = torch.empty(len(queries), k, dtype=torch.long, device=queries.device)
    similarities = torch.empty(len(queries), k, device=queries.device)
    query_blocks = blocks(len(queries), len(database))
    for rows in watched(query_blocks, "neighbours", total=len(query_blocks)):
        indices[rows], similarities[rows] = _ranked_candidates(
            database, inverse_norms, queries[rows], exclude[rows], coarse, candidates, k
        )
    log.info(
        "neighbours: %d candidates from %d of %d dimensions as %s, recall %.4f on %d probes",
        candidates, coarse.codes.shape[1], database.shape[1], coarse.kind.name,
        _recall(indices[probes], truth), len(probes),
    )  # fmt: skip
    return indices, similarities


def _cheapest_plan(
    database: Tensor, k: int, recall: float, probes: Tensor, exclude: Tensor, truth: Tensor
) -> tuple[Coarse, int]:
    """The cheapest codes and number of candidates that reach `recall` plus the safety margin on the probes."""
    mean, basis = principal_directions(database)
    kind = codes_for(database.device)
    most = min(max(_MOST_CANDIDATES, 4 * k), len(database) - 1)
    wanted = recall + _RESERVE * (1 - recall)
    cheapest: tuple[float, Coarse, int] | None = None
    for dims in [d for d in _DIMS if d < database.shape[1]] + [database.shape[1]]:
        if cheapest is not None and len(database) * dims >= cheapest[0]:
            break
        coarse = Coarse(basis[:, :dims], mean, database, kind)
        by_count = _recall_by_count(coarse, most, probes, exclude, truth)  # (most,)
        enough = (by_count >= wanted).nonzero()
        candidates = int(enough[0]) + 1 if len(enough) else most
        cost = len(database) * dims + kind.ranking * candidates * database.shape[1]
        if (len(enough) or dims == database.shape[1]) and (cheapest is None or cost < cheapest[0]):
            cheapest = (cost, coarse, max(k, candidates))
    assert cheapest is not None
    return cheapest[1:]


def _recall_by_count(coarse: Coarse, most: int, probes: Tensor, exclude: Tensor, truth: Tensor) -> Tensor:
    """Recall on the probes with 1, 2, … `most` candidates: `(most,)`."""
    scores, found = best_columns(coarse.encode_queries(probes), coarse.codes, most + 1)
    found, _ = _drop(exclude, found, scores)  # (P, most)
    hit = (found[:, :, None] == truth[:, None, :]).any(dim=2)  # (P, most)
    return hit.sum(dim=0).cumsum(0) / truth.numel()


def _ranked_candidates(
    database: Tensor, inverse_norms: Tensor, queries: Tensor, exclude: Tensor, coarse: Coarse, candidates: int, k: int
) -> tuple[Tensor, Tensor]:
    """Neighbours of the queries: candidates found with the codes, then ranked with the features."""
    query = F.normalize(queries.float(), dim=1)  # (Q, D)
    _, found = best_columns(coarse.encode_queries(query), coarse.codes, candidates + 1)  # (Q, C + 1)
    similarity = torch.empty(found.shape, device=found.device)
    for start in range(0, len(query), _RANKED_AT_ONCE):
        chunk = slice(start, start + _RANKED_AT_ONCE)
        features = database.index_select(0, found[chunk].flatten()).float()  # (q·(C + 1), D)
        features = features.view(-1, found.shape[1], database.shape[1])  # (q, C + 1, D)
        similarity[chunk] = torch.einsum("qd,qcd->qc", query[chunk], features)
    similarity *= inverse_norms[found]
    similarity.masked_fill_(found == exclude[:, None], -torch.inf)
    best, place = similarity.topk(k, dim=1)
    return found.gather(1, place), best


def _drop(excluded: Tensor, indices: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Drop one entry of each row `(Q, k + 1)`: the index `excluded` `(Q,)`, or the last if the row does not have it."""
    columns = torch.arange(indices.shape[1], device=excluded.device)
    order = torch.where(indices == excluded[:, None], indices.shape[1], columns).argsort(dim=1, stable=True)[:, :-1]
    return indices.gather(1, order), scores.gather(1, order)


def _recall(found: Tensor, truth: Tensor) -> float:
    """Share of the entries of `truth` `(P, k)` that are in the same row of `found` `(P, k)`."""
    return float((found[:, :, None] == truth[:, None, :]).any(dim=1).float().mean())
