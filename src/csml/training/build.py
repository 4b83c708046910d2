"""From the config to the modules of a run."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from csml.config.schema import OptimizerConfig, PretrainConfig
from csml.methods import Byol, Framework, MomentumContrast
from csml.models.backbones import build_backbone
from csml.models.encoder import Encoder
from csml.world import ALONE, World

_LONGEST_QUEUE = 65_536
_SHORTEST_QUEUE = 256


def build_method(config: PretrainConfig, images: int, world: World = ALONE) -> Framework:
    """The framework with freshly initialised weights, the same for the same seed."""
    model, byol = config.model, config.framework == "byol"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        backbone = build_backbone(model.backbone, model.small_images)
        encoder = Encoder(backbone, model.stages, model.dim, model.hidden, model.narrowing, norm=byol)
        if byol:
            return Byol(encoder, model.dim, config.byol, world)
        # Every process, and every piece of a batch, is a sub-batch of its own already.
        splits = max(1, config.contrast.bn_splits // (world.size * config.hardware.accumulate))
        contrast = replace(config.contrast, bn_splits=splits)
        return MomentumContrast(encoder, queue_length(config, images), model.dim, contrast, world)


def queue_length(config: PretrainConfig, images: int) -> int:
    """What was asked for, else an eighth of the data set as a power of two; never more than half of the data set."""
    if config.contrast.queue_length is not None:
        return config.contrast.queue_length
    power = 1 << max(0, (images // 8).bit_length() - 1)
    return max(1, min(_LONGEST_QUEUE, max(_SHORTEST_QUEUE, power), images // 2))


Learning = tuple[Iterable[nn.Parameter], float]
"""Parameters and their peak learning rate."""


def build_optimizer(parts: Sequence[Learning], settings: OptimizerConfig) -> torch.optim.Optimizer:
    """Over the parameters that want a gradient (a key encoder follows by itself); each group knows its `initial_lr`."""
    groups = [
        {"params": [p for p in parameters if p.requires_grad], "lr": lr, "initial_lr": lr} for parameters, lr in parts
    ]
    common: dict[str, Any] = {"momentum": settings.momentum, "weight_decay": settings.weight_decay}
    if settings.kind == "sgd":
        return torch.optim.SGD(groups, fused=True, **common)
    from timm.optim.lars import Lars  # here: timm takes seconds to import

    # Biases and BatchNorm take plain SGD steps without decay, as in BYOL.
    matrices = [_only(group, lambda p: p.dim() > 1, always_adapt=True) for group in groups]
    vectors = [_only(group, lambda p: p.dim() <= 1, weight_decay=0.0) for group in groups]
    return Lars(matrices + vectors, trust_coeff=settings.trust, **common)


def _only(group: dict[str, Any], wanted: Callable[[nn.Parameter], bool], **settings: Any) -> dict[str, Any]:
    return {**group, **settings, "params": [p for p in group["params"] if wanted(p)]}


def peak_learning_rate(settings: OptimizerConfig, batch_size: int) -> float:
    return settings.lr_per_256 * batch_size / 256
