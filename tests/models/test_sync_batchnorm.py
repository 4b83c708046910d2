"""BatchNorm over several processes against torch's over the whole batch, in float64."""

import pytest
import torch
from torch import Tensor, nn

from csml.distributed.world import World
from csml.models.sync_batchnorm import SharedBatchNorm, synchronised
from processes import together

SHAPES = [(7, 3, 4, 5), (7, 3)]


def normed(world: World, shape: tuple[int, ...]) -> tuple[Tensor, Tensor, list[Tensor], dict[str, Tensor]]:
    whole = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 3 + 50
    pull = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.manual_seed(0)
    kind = nn.BatchNorm2d if len(shape) == 4 else nn.BatchNorm1d
    network = nn.Sequential(kind(3)).double()
    nn.init.uniform_(network[0].weight)
    synchronised(network, world, torch.device("cpu"))
    rows = world.share(len(whole))  # 4 and 3 rows
    mine = whole[rows].clone().requires_grad_()
    output = network(mine)
    (output * pull[rows]).sum().backward()
    world.add_gradients(network)
    assert mine.grad is not None
    return output.detach(), mine.grad, [p.grad for p in network.parameters()], dict(network[0].named_buffers())


@pytest.mark.parametrize("shape", SHAPES)
def test_two_processes_normalise_as_one(shape: tuple[int, ...]) -> None:
    output, gradient, of_parameters, buffers = normed(World(), shape)
    halves = together(2, normed, shape)
    torch.testing.assert_close(torch.cat([half[0] for half in halves]), output)
    torch.testing.assert_close(torch.cat([half[1] for half in halves]), gradient)
    for half in halves:
        torch.testing.assert_close(half[2], of_parameters)
        torch.testing.assert_close(half[3], buffers)


def test_in_eval_mode_nobody_is_asked() -> None:
    norm = SharedBatchNorm(3).eval()
    x = torch.randn(2, 3, 4, 4)
    torch.testing.assert_close(norm(x), nn.BatchNorm2d(3).eval()(x))
