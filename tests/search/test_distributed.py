"""A database in parts, in several processes, against the search in the whole."""

import pytest
import torch
from torch import Tensor

from csml.distributed.world import World
from csml.search import nearest_neighbors as search_module
from csml.search.distributed import distributed_search
from csml.search.nearest_neighbors import nearest, top_k
from csml.search.omega import Omega, search_omega
from processes import together

LENGTHS = (40, 3, 77)  # one part is smaller than k


def features() -> Tensor:
    return torch.randn(sum(LENGTHS), 16, generator=torch.Generator().manual_seed(0)).half()


def mine(world: World, whole: Tensor) -> Tensor:
    return whole.split(LENGTHS)[world.rank]


def own_neighbors(world: World, k: int) -> tuple[Tensor, Tensor]:
    whole = features()
    own = mine(world, torch.arange(len(whole)))
    return distributed_search(mine(world, whole), mine(world, whole), k, world, exclude=own)


def of_queries(world: World, k: int) -> tuple[Tensor, Tensor]:
    queries = torch.randn(5, 16, generator=torch.Generator().manual_seed(world.rank))
    return distributed_search(queries, mine(world, features()), k, world)


@pytest.mark.parametrize("k", [1, 10, 119])
def test_neighbors_in_parts_are_those_in_the_whole(k: int) -> None:
    indices, similarities = top_k(features(), k)
    found = together(3, own_neighbors, k)
    torch.testing.assert_close(torch.cat([part[1] for part in found]), similarities, rtol=1e-5, atol=1e-6)
    assert torch.equal(torch.cat([part[0] for part in found]), indices)


def test_every_process_has_its_own_queries() -> None:
    for rank, (indices, similarities) in enumerate(together(3, of_queries, 20)):
        queries = torch.randn(5, 16, generator=torch.Generator().manual_seed(rank))
        expected, theirs = nearest(queries, features(), 20)
        assert torch.equal(indices, expected)
        torch.testing.assert_close(similarities, theirs, rtol=1e-5, atol=1e-6)


def with_candidates(world: World) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """As among many images: parts are searched by codes, and what passes is half precision."""
    search_module.SMALL = 500
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(40, 32, generator=generator)
    whole = (centres[torch.arange(3000) % 40] + 0.5 * torch.randn(3000, 32, generator=generator)).half()
    share = world.share(len(whole))
    own = torch.arange(share.start, share.stop)
    found, _ = distributed_search(whole[share], whole[share], 10, world, recall=0.95, exclude=own)
    truth, _ = nearest(whole[share], whole, 10, exclude=own)
    return found, truth, tuple(whole[share].shape)


def test_the_recall_that_was_asked_for_is_reached_across_parts() -> None:
    found = together(2, with_candidates)
    hits = [(one[0][:, :, None] == one[1][:, None, :]).any(1).float().mean() for one in found]
    assert min(hits) >= 0.95
    assert [one[2] for one in found] == [(1500, 32)] * 2


def omega(world: World) -> Omega:
    whole = torch.randn(11, 4, generator=torch.Generator().manual_seed(3))
    good = torch.ones(11, dtype=torch.bool)
    good[[2, 7]] = False
    share = world.share(11)
    return search_omega(whole[share], good[share], k=3, epoch=1, recall=1.0, world=world)


def test_omega_of_two_processes_is_that_of_one_where_images_cannot_be_read() -> None:
    alone = omega(World())
    for one in together(2, omega):
        assert (one.indices == alone.indices).all()
        torch.testing.assert_close(torch.from_numpy(one.similarities), torch.from_numpy(alone.similarities))
    assert (alone.indices[[2, 7]] == [[2] * 3, [7] * 3]).all()
