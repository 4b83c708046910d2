"""Cosine neighbours in bounded memory: exactly, or by candidates whose recall is measured on the data at hand."""

import logging

import torch
import torch.nn.functional as F
from torch import Tensor

from csml.neighbors.coarse import Coarse, principal_directions
from csml.neighbors.scan import best_columns, blocks
from csml.progress import watched

log = logging.getLogger("csml")

SMALL = 16_384
"""Rows up to which an exact search is so quick that candidates would not pay."""
_PROBES = 512
"""Rows on which the recall is measured."""
_DIMS = (64, 128, 256, 512, 1024, 2048)
_MOST_CANDIDATES = 128
_RESERVE = 0.2
"""Share of the misses that `recall` allows which is held back: the plan is chosen on the probes, which are a sample."""
_RANKING_COST = 400
"""What a dimension of a candidate costs, looked up and multiplied, in products of codes; measured with VNNI."""
_RANKED_AT_ONCE = 32
"""Queries whose candidates are looked up at once: 32 MB for 128 candidates of 2048 dimensions."""


def nearest(queries: Tensor, database: Tensor, k: int, exclude: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The k database rows most similar to each query, in float32, without a float32 copy of the database.

    Args:
        queries: `(Q, D)`.
        database: `(N, D)`.
        k: number of neighbours, at most N (N − 1 with `exclude`).
        exclude: `(Q,)`, a database row that is never returned for the query; rows that there are not exclude nothing.

    Returns:
        indices `(Q, k)` int64 and cosine similarities `(Q, k)` float32, best first.
    """
    available = len(database) - (exclude is not None)
    if not 0 <= k <= available:
        raise ValueError(f"k = {k} neighbours were asked for, but there are only {available}")
    wanted = k + (exclude is not None)
    found = nothing_found(len(queries), wanted, queries.device)
    for start in range(0, len(database), SMALL):
        block = F.normalize(database[start : start + SMALL].float(), dim=1)  # (n, D)
        for rows in blocks(len(queries), len(block)):
            query = F.normalize(queries[rows].float(), dim=1)
            similarity, columns = best_columns(query, block, min(wanted, len(block)))
            merge(found, rows, columns + start, similarity)
    return found if exclude is None else _without(exclude, *found)


def nothing_found(queries: int, k: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Where a search begins that goes through the database in parts: indices and similarities `(Q, k)`."""
    return torch.full((queries, k), -1, device=device), torch.full((queries, k), -torch.inf, device=device)


def merge(found: tuple[Tensor, Tensor], rows: slice, indices: Tensor, similarities: Tensor) -> None:
    """Keep the best of what was `found`, `(Q, k)` twice, for some rows and of `(q, n)` more; in place."""
    everything = torch.cat([found[1][rows], similarities], dim=1)
    best, place = everything.topk(found[1].shape[1], dim=1)
    found[0][rows] = torch.cat([found[0][rows], indices], dim=1).gather(1, place)
    found[1][rows] = best


def top_k(features: Tensor, k: int, recall: float = 1.0) -> tuple[Tensor, Tensor]:
    """The k nearest neighbours of every row among the other rows, by cosine.

    A row is excluded by its index, not as "the first hit": where duplicates exist, they are its neighbours. Arguments
    and result as of `search`.
    """
    return search(features, features, k, recall, torch.arange(len(features), device=features.device))


def search(queries: Tensor, database: Tensor, k: int, recall: float, exclude: Tensor) -> tuple[Tensor, Tensor]:
    """The k database rows most similar to each query, or nearly those.

    Args:
        queries, database: `(Q, D)`, `(N, D)`, of any floating type.
        k: less than N.
        recall: share of the true neighbours that has to be found; 1 is an exact search in float32.
        exclude: as in `nearest`.

    Returns:
        indices `(Q, k)` int64 and similarities `(Q, k)` float32, best first.
    """
    if recall >= 1 or len(database) <= SMALL or k == 0 or not len(queries):
        return nearest(queries, database, k, exclude)
    probes = torch.arange(len(queries), device=queries.device)[:: max(1, len(queries) // _PROBES)][:_PROBES]
    truth = nearest(queries[probes], database, k, exclude[probes])[0]
    coarse, candidates = _cheapest(database, k, recall, queries[probes], exclude[probes], truth)
    # In parts: of all at once torch would first make a float32 copy.
    norms = torch.cat([torch.linalg.vector_norm(part.float(), dim=1) for part in database.split(SMALL)])  # (N,)
    inverse_norms = 1 / norms.clamp(min=1e-12)
    indices = torch.empty(len(queries), k, dtype=torch.long, device=queries.device)
    similarities = torch.empty(len(queries), k, device=queries.device)
    parts = blocks(len(queries), len(database))
    for rows in watched(parts, "neighbours", total=len(parts)):
        indices[rows], similarities[rows] = _ranked(
            database, inverse_norms, queries[rows], exclude[rows], coarse, candidates, k
        )
    log.info(
        "neighbours: %d candidates from %d of %d dimensions, recall %.4f on %d probes",
        candidates, coarse.codes.shape[1], database.shape[1], _recall(indices[probes], truth), len(probes),
    )  # fmt: skip
    return indices, similarities


def _cheapest(
    database: Tensor, k: int, recall: float, probes: Tensor, exclude: Tensor, truth: Tensor
) -> tuple[Coarse, int]:
    """The cheapest dimensions and candidates that find `recall` of the neighbours of the probes, and a little more."""
    mean, basis = principal_directions(database)
    most = min(max(_MOST_CANDIDATES, 4 * k), len(database) - 1)
    wanted = recall + _RESERVE * (1 - recall)
    cheapest: tuple[float, Coarse, int] | None = None
    for dims in [d for d in _DIMS if d < database.shape[1]] + [database.shape[1]]:
        if cheapest is not None and len(database) * dims >= cheapest[0]:
            break
        coarse = Coarse(basis[:, :dims], mean, database)
        by_count = _recall_by_count(coarse, most, probes, exclude, truth)  # (most,)
        enough = (by_count >= wanted).nonzero()
        candidates = int(enough[0]) + 1 if len(enough) else most
        cost = len(database) * dims + _RANKING_COST * candidates * database.shape[1]
        if (len(enough) or dims == database.shape[1]) and (cheapest is None or cost < cheapest[0]):
            cheapest = (cost, coarse, max(k, candidates))
    assert cheapest is not None
    return cheapest[1:]


def _recall_by_count(coarse: Coarse, most: int, probes: Tensor, exclude: Tensor, truth: Tensor) -> Tensor:
    """Share of the neighbours of the probes among 1, 2, … `most` candidates: `(most,)`."""
    scores, found = best_columns(coarse.encode_queries(probes), coarse.codes, most + 1)
    found, _ = _without(exclude, found, scores)  # (P, most)
    hit = (found[:, :, None] == truth[:, None, :]).any(dim=2)  # (P, most)
    return hit.sum(dim=0).cumsum(0) / truth.numel()


def _ranked(
    database: Tensor, inverse_norms: Tensor, queries: Tensor, exclude: Tensor, coarse: Coarse, candidates: int, k: int
) -> tuple[Tensor, Tensor]:
    """Neighbours of the queries: candidates by codes, ranked by the features themselves."""
    query = F.normalize(queries.float(), dim=1)  # (Q, D)
    _, found = best_columns(coarse.encode_queries(query), coarse.codes, candidates + 1)  # (Q, C + 1)
    similarity = torch.empty(found.shape, device=found.device)
    for start in range(0, len(query), _RANKED_AT_ONCE):
        part = slice(start, start + _RANKED_AT_ONCE)
        close = database.index_select(0, found[part].flatten()).float()  # (q·(C + 1), D)
        close = close.view(-1, found.shape[1], database.shape[1])  # (q, C + 1, D)
        similarity[part] = torch.einsum("qd,qcd->qc", query[part], close)
    similarity *= inverse_norms[found]
    similarity.masked_fill_(found == exclude[:, None], -torch.inf)
    best, place = similarity.topk(k, dim=1)
    return found.gather(1, place), best


def _without(own: Tensor, indices: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Drop `own` `(Q,)` from each row of `(Q, k + 1)`, or the last where it is not there; best stay first."""
    late = torch.where(indices == own[:, None], indices.shape[1], torch.arange(indices.shape[1], device=own.device))
    order = late.argsort(dim=1, stable=True)[:, :-1]  # (Q, k)
    return indices.gather(1, order), scores.gather(1, order)


def _recall(found: Tensor, truth: Tensor) -> float:
    """Share of `truth` `(P, k)` that is in the same row of `found` `(P, k)`."""
    return float((found[:, :, None] == truth[:, None, :]).any(dim=1).float().mean())
