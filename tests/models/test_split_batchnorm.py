"""Split BatchNorm: what it computes, and that it stops the leak it is there for."""

import pytest
import torch
from timm.layers import BatchNormAct2d
from torch import nn

from csml.models import build_backbone
from csml.models.split_batchnorm import SplitBatchNorm2d, split_batchnorm


@pytest.mark.parametrize("batch", [8, 11])
def test_each_sub_batch_is_normalised_by_itself(batch: int) -> None:
    split, plain = SplitBatchNorm2d(4, 3, eps=1e-5, momentum=0.1), nn.BatchNorm2d(4)
    x = torch.randn(batch, 4, 5, 5)
    expected = torch.cat([plain(part) for part in x.tensor_split(3)])
    torch.testing.assert_close(split(x), expected)


def test_running_statistics_move_once_by_the_mean_of_the_sub_batches() -> None:
    split = SplitBatchNorm2d(4, 2, eps=1e-5, momentum=0.1)
    x = torch.randn(8, 4, 5, 5) * 3 + 1
    split(x)
    parts = x.tensor_split(2)
    mean = torch.stack([part.mean(dim=(0, 2, 3)) for part in parts]).mean(0)
    variance = torch.stack([part.transpose(0, 1).flatten(1).var(1) for part in parts]).mean(0)
    torch.testing.assert_close(split.running_mean, 0.1 * mean)
    torch.testing.assert_close(split.running_var, 0.9 + 0.1 * variance)
    assert split.num_batches_tracked is not None
    assert split.num_batches_tracked.item() == 1


def test_in_eval_mode_it_is_a_plain_batchnorm() -> None:
    split, plain = SplitBatchNorm2d(4, 2, eps=1e-5, momentum=0.1).eval(), nn.BatchNorm2d(4).eval()
    x = torch.randn(8, 4, 5, 5)
    torch.testing.assert_close(split(x), plain(x))


@pytest.mark.parametrize("batch", [2, 3])
def test_a_batch_too_small_to_split_still_works(batch: int) -> None:
    split = SplitBatchNorm2d(4, 8, eps=1e-5, momentum=0.1)
    assert torch.isfinite(split(torch.randn(batch, 4, 1, 1))).all()


def test_all_layers_are_replaced_and_weights_keep_their_names() -> None:
    net = build_backbone("tiny")
    before = {name: value.clone() for name, value in net.state_dict().items()}
    split_batchnorm(net, 4)
    norms = [m for m in net.modules() if isinstance(m, nn.BatchNorm2d)]
    assert norms
    assert all(isinstance(m, SplitBatchNorm2d) for m in norms)
    after = net.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], before[name]) for name in before)


@pytest.mark.parametrize("channels_last", [False, True])
def test_gradients_are_those_of_plain_batchnorms_on_the_parts(channels_last: bool) -> None:
    layout = torch.channels_last if channels_last else torch.contiguous_format
    split, plain = SplitBatchNorm2d(4, 3, eps=1e-5, momentum=0.1).double(), nn.BatchNorm2d(4).double()
    for norm in (split, plain):
        with torch.no_grad():
            norm.weight.copy_(torch.tensor([1.0, 0.5, -2.0, 3.0]))
    x = torch.randn(11, 4, 5, 5, dtype=torch.float64)
    ours = x.clone(memory_format=layout).requires_grad_()
    theirs = x.clone().requires_grad_()
    weigh = torch.randn_like(x)
    (split(ours) * weigh).sum().backward()
    (torch.cat([plain(part) for part in theirs.tensor_split(3)]) * weigh).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
    torch.testing.assert_close(split.weight.grad, plain.weight.grad)
    torch.testing.assert_close(split.bias.grad, plain.bias.grad)


def test_half_precision_activations_are_normalised_with_full_precision_weights() -> None:
    split = SplitBatchNorm2d(4, 2, eps=1e-5, momentum=0.1)
    x = torch.randn(8, 4, 5, 5)
    half = x.bfloat16().requires_grad_()
    out = split(half)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), split(x), atol=0.03, rtol=0.03)
    out.float().square().sum().backward()
    assert half.grad is not None and half.grad.dtype == torch.bfloat16
    assert split.weight.grad is not None and split.weight.grad.dtype == torch.float32


@pytest.mark.parametrize("batch", [12, 11])
def test_compiled_it_computes_the_same(batch: int) -> None:
    """`eager` runs what dynamo traced: the formula where sub-batches are equal, the usual way where they are not."""
    ours, theirs = (SplitBatchNorm2d(4, 3, eps=1e-5, momentum=0.1) for _ in range(2))
    x = torch.randn(batch, 4, 5, 5)
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    out, expected = torch.compile(ours, backend="eager")(a), theirs(b)
    torch.testing.assert_close(out, expected)
    out.pow(3).sum().backward()
    expected.pow(3).sum().backward()
    torch.testing.assert_close(a.grad, b.grad, atol=1e-4, rtol=1e-4)
    for name, value in ours.state_dict().items():
        torch.testing.assert_close(value, theirs.state_dict()[name])


def test_the_activation_inside_of_timm_s_batchnorm_is_kept() -> None:
    plain = BatchNormAct2d(4, eps=1e-3, act_layer=nn.SiLU)
    nn.init.uniform_(plain.weight)
    nn.init.uniform_(plain.bias)
    network = nn.Sequential(plain)
    split_batchnorm(network, 3)
    x = torch.randn(12, 4, 5, 5)
    assert isinstance(network[0], SplitBatchNorm2d)
    torch.testing.assert_close(network(x), torch.cat([plain(part) for part in x.tensor_split(3)]))
    plain.load_state_dict(network[0].state_dict())
    torch.testing.assert_close(network.eval()(x), plain.eval()(x))


@pytest.mark.parametrize("name", ["timm:test_resnet", "timm:regnety_002", "timm:test_efficientnet"])
def test_a_network_of_timm_normalises_each_sub_batch_by_itself(name: str) -> None:
    torch.manual_seed(0)
    plain, split = build_backbone(name), build_backbone(name)
    split.load_state_dict(plain.state_dict())
    split_batchnorm(split, 2)
    assert list(split.state_dict()) == list(plain.state_dict())
    x = torch.rand(4, 3, 64, 64)
    with torch.no_grad():
        expected = torch.cat([plain(part) for part in x.tensor_split(2)])
        torch.testing.assert_close(split(x), expected, atol=1e-4, rtol=1e-4)
