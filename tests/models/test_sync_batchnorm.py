"""BatchNorm over several processes against torch's over the whole batch, in float64."""

import pytest
import torch
from timm.layers import BatchNormAct2d
from torch import Tensor, nn

from csml.distributed.world import World
from csml.models.sync_batchnorm import SharedBatchNorm, synchronised
from processes import sum_gradients, together

KINDS = {nn.BatchNorm2d: (7, 3, 4, 5), nn.BatchNorm1d: (7, 3), BatchNormAct2d: (7, 3, 4, 5)}
"""timm's has an activation in it."""


def normed(world: World, kind: type[nn.Module]) -> tuple[Tensor, Tensor, list[Tensor], dict[str, Tensor]]:
    shape = KINDS[kind]
    whole = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 3 + 50
    pull = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.manual_seed(0)
    network = nn.Sequential(kind(3)).double()
    nn.init.uniform_(network[0].weight)
    synchronised(network, world, torch.device("cpu"))
    rows = world.share(len(whole))  # 4 and 3 rows
    mine = whole[rows].clone().requires_grad_()
    output = network(mine)
    (output * pull[rows]).sum().backward()
    sum_gradients(world, network)
    assert mine.grad is not None
    return output.detach(), mine.grad, [p.grad for p in network.parameters()], dict(network[0].named_buffers())


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_normalise_as_one(kind: type[nn.Module]) -> None:
    output, gradient, of_parameters, buffers = normed(World(), kind)
    halves = together(2, normed, kind)
    torch.testing.assert_close(torch.cat([half[0] for half in halves]), output)
    torch.testing.assert_close(torch.cat([half[1] for half in halves]), gradient)
    for half in halves:
        torch.testing.assert_close(half[2], of_parameters)
        torch.testing.assert_close(half[3], buffers)


def test_in_eval_mode_nobody_is_asked() -> None:
    norm = SharedBatchNorm(3).eval()
    x = torch.randn(2, 3, 4, 4)
    torch.testing.assert_close(norm(x), nn.BatchNorm2d(3).eval()(x))
