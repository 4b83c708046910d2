"""Builds the network and the optimizer of a run from its settings."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from csml.config import OptimizerConfig, PretrainConfig
from csml.distributed.world import ALONE, World
from csml.methods import Framework, framework_class
from csml.models.backbones import Backbone

_CPU = torch.device("cpu")


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the initialisation of weights inside the block; torch's global generator is restored."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def build_method(
    config: PretrainConfig,
    images: int,
    world: World = ALONE,
    device: torch.device = _CPU,
    start: Backbone | None = None,
) -> Framework:
    """The framework with fresh weights, the same for the same seed, or with those of the backbone `start`."""
    with seeded(config.seed):
        method = framework_class(config.framework).from_config(config, images, world, device)
    if start is not None:
        method.start_from(start)
    return method


Learning = tuple[Iterable[nn.Parameter], float]
"""Parameters and their peak learning rate."""


def build_optimizer(groups: Sequence[Learning], settings: OptimizerConfig) -> torch.optim.Optimizer:
    """An optimizer over the parameters that require a gradient (those of a key encoder do not).

    Each group keeps its peak learning rate as `initial_lr`.
    """
    made = [
        {"params": [p for p in parameters if p.requires_grad], "lr": lr, "initial_lr": lr} for parameters, lr in groups
    ]
    if settings.kind == "adamw":
        return torch.optim.AdamW(made, weight_decay=settings.weight_decay, betas=(settings.momentum, 0.999), fused=True)
    common: dict[str, Any] = {"momentum": settings.momentum, "weight_decay": settings.weight_decay}
    if settings.kind == "sgd":
        return torch.optim.SGD(made, fused=True, **common)
    from timm.optim.lars import Lars  # timm takes seconds to import

    # Biases and BatchNorm take plain SGD steps without decay, as in BYOL.
    matrices = [_only(group, lambda p: p.dim() > 1, always_adapt=True) for group in made]
    vectors = [_only(group, lambda p: p.dim() <= 1, weight_decay=0.0) for group in made]
    return Lars(matrices + vectors, trust_coeff=settings.trust, **common)


def _only(group: dict[str, Any], wanted: Callable[[nn.Parameter], bool], **settings: Any) -> dict[str, Any]:
    return {**group, **settings, "params": [p for p in group["params"] if wanted(p)]}


def peak_learning_rate(settings: OptimizerConfig, batch_size: int) -> float:
    """The learning rate, scaled linearly with the batch size."""
    return settings.lr_per_256 * batch_size / 256
