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
    """The k database rows most similar to each query, in float32.

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
    database = F.normalize(database.float(), dim=1)
    indices = torch.empty(len(queries), k, dtype=torch.long, device=queries.device)
    similarities = torch.empty(len(queries), k, device=queries.device)
    for block in blocks(len(queries), len(database)):
        query = F.normalize(queries[block].float(), dim=1)
        similarity, found = best_columns(query, database, k + (exclude is not None))
        if exclude is not None:
            similarity, found = _without(exclude[block], similarity, found)
        similarities[block], indices[block] = similarity, found
    return indices, similarities


def top_k(features: Tensor, k: int, recall: float = 1.0) -> tuple[Tensor, Tensor]:
    """The k nearest neighbours of every row among the other rows, by cosine.

    A row is excluded by its index, not as "the first hit": where duplicates exist, they are its neighbours.

    Args:
        features: `(N, D)`, of any floating type.
        k: less than N.
        recall: share of the true neighbours that has to be found; 1 is an exact search in float32.

    Returns:
        indices `(N, k)` int64 and similarities `(N, k)` float32, best first.
    """
    own = torch.arange(len(features), device=features.device)
    if recall >= 1 or len(features) <= SMALL or k == 0:
        return nearest(features, features, k, exclude=own)
    probes = own[:: max(1, len(own) // _PROBES)][:_PROBES]
    truth = _exactly(features, probes, k)
    coarse, candidates = _cheapest(features, k, recall, probes, truth)
    # In parts: of all at once torch would first make a float32 copy.
    norms = torch.cat([torch.linalg.vector_norm(part.float(), dim=1) for part in features.split(SMALL)])  # (N,)
    inverse_norms = 1 / norms.clamp(min=1e-12)
    indices = torch.empty(len(own), k, dtype=torch.long, device=own.device)
    similarities = torch.empty(len(own), k, device=own.device)
    parts = blocks(len(own), len(own))
    for block in watched(parts, "neighbours", total=len(parts)):
        indices[block], similarities[block] = _ranked(features, inverse_norms, own[block], coarse, candidates, k)
    log.info(
        "neighbours: %d candidates from %d of %d dimensions, recall %.4f on %d probes",
        candidates, coarse.codes.shape[1], features.shape[1], _recall(indices[probes], truth), len(probes),
    )  # fmt: skip
    return indices, similarities


def _cheapest(features: Tensor, k: int, recall: float, probes: Tensor, truth: Tensor) -> tuple[Coarse, int]:
    """The cheapest dimensions and candidates that find `recall` of the neighbours of the probes, and a little more."""
    mean, basis = principal_directions(features)
    most = min(max(_MOST_CANDIDATES, 4 * k), len(features) - 1)
    wanted = recall + _RESERVE * (1 - recall)
    cheapest: tuple[float, Coarse, int] | None = None
    for dims in [d for d in _DIMS if d < features.shape[1]] + [features.shape[1]]:
        if cheapest is not None and len(features) * dims >= cheapest[0]:
            break
        coarse = Coarse(basis[:, :dims], mean, features)
        by_count = _recall_by_count(features, coarse, most, probes, truth)  # (most,)
        enough = (by_count >= wanted).nonzero()
        candidates = int(enough[0]) + 1 if len(enough) else most
        cost = len(features) * dims + _RANKING_COST * candidates * features.shape[1]
        if (len(enough) or dims == features.shape[1]) and (cheapest is None or cost < cheapest[0]):
            cheapest = (cost, coarse, max(k, candidates))
    assert cheapest is not None
    return cheapest[1:]


def _recall_by_count(features: Tensor, coarse: Coarse, most: int, probes: Tensor, truth: Tensor) -> Tensor:
    """Share of the neighbours of the probes among 1, 2, … `most` candidates: `(most,)`."""
    _, found = best_columns(coarse.encode_queries(features[probes]), coarse.codes, most + 1)
    _, found = _without(probes, torch.zeros_like(found), found)  # (P, most)
    hit = (found[:, :, None] == truth[:, None, :]).any(dim=2)  # (P, most)
    return hit.sum(dim=0).cumsum(0) / truth.numel()


def _ranked(
    features: Tensor, inverse_norms: Tensor, rows: Tensor, coarse: Coarse, candidates: int, k: int
) -> tuple[Tensor, Tensor]:
    """Neighbours of the given rows: candidates by codes, ranked by the features themselves."""
    query = F.normalize(features[rows].float(), dim=1)  # (Q, D)
    _, found = best_columns(coarse.encode_queries(query), coarse.codes, candidates + 1)  # (Q, C + 1)
    similarity = torch.empty(found.shape, device=found.device)
    for start in range(0, len(rows), _RANKED_AT_ONCE):
        part = slice(start, start + _RANKED_AT_ONCE)
        close = features.index_select(0, found[part].flatten()).float()  # (q·(C + 1), D)
        close = close.view(-1, found.shape[1], features.shape[1])  # (q, C + 1, D)
        similarity[part] = torch.einsum("qd,qcd->qc", query[part], close)
    similarity *= inverse_norms[found]
    similarity.masked_fill_(found == rows[:, None], -torch.inf)
    best, place = similarity.topk(k, dim=1)
    return found.gather(1, place), best


def _exactly(features: Tensor, rows: Tensor, k: int) -> Tensor:
    """Neighbours `(Q, k)` of a few rows, without a float32 copy of all."""
    query = F.normalize(features[rows].float(), dim=1)
    best = torch.empty(len(rows), 0, device=rows.device)
    indices = torch.empty(len(rows), 0, dtype=torch.long, device=rows.device)
    for start in range(0, len(features), SMALL):
        block = F.normalize(features[start : start + SMALL].float(), dim=1)
        similarity, found = best_columns(query, block, min(k + 1, len(block)))
        best, indices = torch.cat([best, similarity], dim=1), torch.cat([indices, found + start], dim=1)
        best, place = best.topk(min(k + 1, best.shape[1]), dim=1)
        indices = indices.gather(1, place)
    return _without(rows, best, indices)[1]


def _without(own: Tensor, scores: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Drop `own` `(Q,)` from each row of `(Q, k + 1)`, or the last where it is not there; best stay first."""
    late = torch.where(indices == own[:, None], indices.shape[1], torch.arange(indices.shape[1], device=own.device))
    order = late.argsort(dim=1, stable=True)[:, :-1]  # (Q, k)
    return scores.gather(1, order), indices.gather(1, order)


def _recall(found: Tensor, truth: Tensor) -> float:
    """Share of `truth` `(P, k)` that is in the same row of `found` `(P, k)`."""
    return float((found[:, :, None] == truth[:, None, :]).any(dim=1).float().mean())
