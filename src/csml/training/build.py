"""From the config to the modules of a run."""

import torch

from csml.config.schema import PretrainConfig
from csml.methods.momentum_contrast import MomentumContrast
from csml.models.backbones import build_backbone
from csml.models.encoder import Encoder

_LONGEST_QUEUE = 65_536
_SHORTEST_QUEUE = 256


def build_method(config: PretrainConfig, images: int) -> MomentumContrast:
    """The framework with freshly initialised weights, the same for the same seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        backbone = build_backbone(config.model.backbone, config.model.small_images)
        model = config.model
        encoder = Encoder(backbone, model.stages, model.dim, model.hidden, model.narrowing)
        return MomentumContrast(encoder, queue_length(config, images), config.model.dim, config.contrast)


def queue_length(config: PretrainConfig, images: int) -> int:
    """What was asked for, else an eighth of the data set as a power of two; never more than half of the data set."""
    if config.contrast.queue_length is not None:
        return config.contrast.queue_length
    power = 1 << max(0, (images // 8).bit_length() - 1)
    return max(1, min(_LONGEST_QUEUE, max(_SHORTEST_QUEUE, power), images // 2))


def build_optimizer(method: MomentumContrast, config: PretrainConfig) -> torch.optim.SGD:
    """SGD over the query encoder; the key encoder follows it by itself."""
    settings = config.optimizer
    return torch.optim.SGD(
        method.query_encoder.parameters(),
        lr=peak_learning_rate(config),
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        fused=True,
    )


def peak_learning_rate(config: PretrainConfig) -> float:
    return config.optimizer.lr_per_256 * config.batch_size / 256
