"""A batch that several processes share, or that goes through in pieces, against one process: in float64."""

from typing import Literal

import pytest
import torch
from torch import Tensor

from csml.config import ByolConfig, ContrastConfig, SimSiamConfig
from csml.distributed.world import Part, World
from csml.methods import Framework
from csml.methods.byol import Byol
from csml.methods.contrast import MomentumContrast
from csml.methods.simsiam import SimSiam
from csml.models import Encoder, build_backbone
from csml.models.sync_batchnorm import synchronised
from csml.views import Views
from processes import sum_gradients, together

B, STEPS, DIM = 8, 4, 8
Kind = Literal["contrast", "contrast in eval mode", "byol", "simsiam"]


def batch(step: int) -> Views:
    generator = torch.Generator().manual_seed(step)

    def images(size: int = 16, each: int = 1) -> Tensor:
        return torch.randn(each * B, 3, size, size, generator=generator, dtype=torch.float64)

    half = torch.tensor([0.5, 0.5], dtype=torch.float64)
    own = torch.rand(B, generator=generator, dtype=torch.float64)  # one λ per sample
    return Views(
        queries={"a": images(), "p": images(), "mixed": images(), "small": images(8, each=2)},
        groups={"a": 1, "p": 1, "mixed": 1, "small": 2},
        keys={"a": images(), "p": images()},
        weights={"a": half, "p": half, "mixed": torch.stack([own, 1 - own]), "small": half},
        key_ids={"a": torch.arange(B) + 100 * step, "p": torch.arange(B) + 1000 + step},
        known=torch.arange(B)[:, None],
    )


def some(views: Views, rows: slice, part: Part) -> Views:
    def own(values: Tensor) -> Tensor:
        return values.unflatten(0, (B, -1))[rows].flatten(0, 1)

    return views._replace(
        queries={name: own(images) for name, images in views.queries.items()},
        keys={name: own(images) for name, images in views.keys.items()},
        weights={name: w[:, rows] if w.dim() == 2 else w for name, w in views.weights.items()},
        key_ids={name: ids[rows] for name, ids in views.key_ids.items()},
        known=views.known[rows],
        part=part,
    )


def built(kind: Kind, world: World) -> Framework:
    torch.manual_seed(0)
    encoder = Encoder(build_backbone("tiny"), (3, 4), DIM, None, norm=kind in ("byol", "simsiam"))
    if kind in ("byol", "simsiam"):
        method: Framework = (
            Byol(encoder, ByolConfig(), world) if kind == "byol" else SimSiam(encoder, SimSiamConfig(), world)
        )
        synchronised(method, world, torch.device("cpu"))
        return method.double()
    config = ContrastConfig(bn_splits=2 // world.size, momentum=0.9)
    return MomentumContrast(encoder, 20, config, world).double().train(kind == "contrast")


def trained(world: World, kind: Kind, pieces: int) -> tuple[dict[str, Tensor], list[float]]:
    """Everything a run of a few steps leaves, and the losses."""
    method = built(kind, world)
    optimizer = torch.optim.SGD([p for p in method.parameters() if p.requires_grad], lr=0.1, momentum=0.9)
    losses = []
    for step in range(STEPS):
        loss, results = torch.zeros((), dtype=torch.float64), []
        for rows, part in world.split_batch(B, pieces):
            results.append(method(some(batch(step), rows, part), torch.Generator().manual_seed(step)))
            weighted = results[-1].loss * (rows.stop - rows.start) / B
            weighted.backward()
            loss += weighted.detach()
        sum_gradients(world, method)
        for result in results:
            method.after_backward(result)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(world.all_reduce_sum(loss)))
    world.average_statistics(method)
    return method.state_dict(), losses


@pytest.mark.parametrize("kind", ["contrast", "contrast in eval mode", "byol", "simsiam"])
def test_two_processes_do_exactly_what_one_does(kind: Kind) -> None:
    """Queries and keys, ShuffleBN's sub-batches, the momentum, the queue; BYOL's and SimSiam's batch statistics."""
    state, losses = trained(World(), kind, 1)
    both = together(2, trained, kind, 1)
    for theirs, their_losses in both:
        assert their_losses == pytest.approx(losses, rel=1e-10)
        for name, value in state.items():
            torch.testing.assert_close(theirs[name], value, rtol=1e-8, atol=1e-10, msg=lambda m, n=name: f"{n}: {m}")
    queues = [{name: value for name, value in theirs.items() if "queue" in name} for theirs, _ in both]
    assert all(torch.equal(queues[0][name], queues[1][name]) for name in queues[0])  # to the bit
    assert kind in ("byol", "simsiam") or len(queues[0]) >= 3


@pytest.mark.parametrize(("processes", "pieces"), [(1, 2), (1, 4), (2, 2)])
def test_a_batch_in_pieces_is_the_batch_at_once(processes: int, pieces: int) -> None:
    kind: Kind = "contrast in eval mode"  # as BatchNorm's statistics are those of a piece
    state, losses = trained(World(), kind, 1)
    ends = together(processes, trained, kind, pieces) if processes > 1 else [trained(World(), kind, pieces)]
    for theirs, their_losses in ends:
        assert their_losses == pytest.approx(losses, rel=1e-10)
        for name, value in state.items():
            torch.testing.assert_close(theirs[name], value, rtol=1e-8, atol=1e-10, msg=lambda m, n=name: f"{n}: {m}")
