"""Optimizers: which parameters, which steps."""

import pytest
import torch
from torch import nn

from conftest import configured
from csml.config import OptimizerConfig
from csml.distributed.world import World
from csml.models.split_batchnorm import SplitBatchNorm2d
from csml.training.build import build_method, build_optimizer, peak_learning_rate


def step_of(kind: str, weight: torch.Tensor, bias: torch.Tensor, gradient: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Two steps of the optimizer on a layer whose gradient is constant."""
    layer = nn.Linear(3, 2).double()
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    settings = OptimizerConfig(kind=kind, weight_decay=0.1, momentum=0.9, trust=0.01)  # type: ignore[arg-type]
    optimizer = build_optimizer([(layer.parameters(), 0.5)], settings)
    for _ in range(2):
        layer.weight.grad = torch.full_like(layer.weight, gradient)
        layer.bias.grad = torch.full_like(layer.bias, gradient)
        optimizer.step()
    return layer.weight.detach(), layer.bias.detach()


def test_lars_scales_a_matrix_by_its_norms_and_leaves_biases_to_plain_sgd() -> None:
    weight, bias = torch.arange(6.0).view(2, 3).double(), torch.tensor([1.0, -1.0]).double()
    ours_w, ours_b = step_of("lars", weight, bias, 0.3)
    w, b, velocity_w, velocity_b = weight.clone(), bias.clone(), torch.zeros(2, 3).double(), torch.zeros(2).double()
    for _ in range(2):
        g = torch.full((2, 3), 0.3).double()
        trust = 0.01 * w.norm() / (g.norm() + 0.1 * w.norm())
        velocity_w = 0.9 * velocity_w + trust * (g + 0.1 * w)
        velocity_b = 0.9 * velocity_b + 0.3
        w, b = w - 0.5 * velocity_w, b - 0.5 * velocity_b
    torch.testing.assert_close(ours_w, w, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(ours_b, b)


@pytest.mark.parametrize("preset", ["demo", "demo-csml-byol", "demo-csml-simsiam"])
@pytest.mark.parametrize("kind", ["sgd", "lars"])
def test_the_optimizer_has_every_weight_that_learns_and_no_other(preset: str, kind: str) -> None:
    config = configured("pretrain", "--preset", preset, "--optimizer.kind", kind)
    method = build_method(config, 1000)
    optimizer = build_optimizer([(method.parameters(), 0.1)], config.optimizer)
    inside = {id(p) for group in optimizer.param_groups for p in group["params"]}
    learning = {id(p) for name, p in method.named_parameters() if not name.startswith("key_encoder")}
    assert inside == learning


def test_the_learning_rate_is_linear_in_the_batch() -> None:
    assert peak_learning_rate(OptimizerConfig(lr_per_256=0.03), 1024) == pytest.approx(0.12)


@pytest.mark.parametrize(("processes", "pieces", "splits"), [(1, 1, 8), (2, 1, 4), (2, 2, 2), (16, 1, 1)])
def test_sub_batches_of_batchnorm_are_as_many_whoever_holds_them(processes: int, pieces: int, splits: int) -> None:
    words = ["--preset", "demo", "--contrast.bn_splits", "8", "--hardware.accumulate", str(pieces)]
    method = build_method(configured("pretrain", *words), 1000, World(0, processes))
    found = {
        m.splits if isinstance(m, SplitBatchNorm2d) else 1 for m in method.modules() if isinstance(m, nn.BatchNorm2d)
    }
    assert found == {splits}
