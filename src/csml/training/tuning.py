"""Which layers of a network are tuned on a few labels, and how."""

from dataclasses import replace

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from csml.config import FinetuneConfig
from csml.evaluation.logistic import Linear
from csml.models.backbones import Backbone, FeatureNet, image_channels
from csml.models.classifier import Classifier

TUNED = ("norms", "last-stage", "all")
"""Options for tuning a network, from few to many parameters."""
_NORMS = (_BatchNorm, nn.LayerNorm, nn.GroupNorm)
_SIDE = 64
"""Side of the blank image used to find the parameters of the last stage."""


def tunable(backbone: Backbone, linear: Linear, how: str) -> Classifier:
    """A classifier on unit features that starts from a fitted linear layer; only the layers of `how` require
    gradients.

    The whole network is in eval mode, because a few labels are too few for BatchNorm statistics.
    """
    classifier = with_linear(backbone, linear).eval()
    tuned = _tuned(backbone, how)
    backbone.requires_grad_(False)
    for parameter in tuned:
        parameter.requires_grad_(True)
    return classifier


def with_linear(backbone: Backbone, linear: Linear) -> Classifier:
    """The backbone and a linear layer on its unit features."""
    weight, bias = linear
    classifier = Classifier(backbone, len(bias), unit=True)
    classifier.fc.weight.data.copy_(weight)
    classifier.fc.bias.data.copy_(bias)
    return classifier


def apply_temperature(classifier: Classifier, temperature: float) -> None:
    """Divide the scores by a temperature, inside the linear layer."""
    classifier.fc.weight.data.div_(temperature)
    classifier.fc.bias.data.div_(temperature)


_SMALL_BATCH, _LEAST_STEPS = 32, 16
"""Batches of a few hundred labels have this size, and larger ones leave this many steps in an epoch: the learning rate
follows the batch size, and one batch of all labels took 6 GB."""


def tuning_config(config: FinetuneConfig, labels: int) -> FinetuneConfig:
    """The settings for training on this many labels, starting from a fitted linear layer."""
    optimizer = replace(config.optimizer, lr_per_256=config.tuning_lr_per_256)
    batch_size = min(config.batch_size, labels, max(_SMALL_BATCH, labels // _LEAST_STEPS))
    return replace(config, batch_size=batch_size, optimizer=optimizer)


def _tuned(backbone: Backbone, how: str) -> list[nn.Parameter]:
    if how == "all":
        return list(backbone.parameters())
    if how == "norms":
        return [p for module in backbone.modules() if isinstance(module, _NORMS) for p in module.parameters()]
    return last_stage_parameters(backbone)


def last_stage_parameters(backbone: Backbone) -> list[nn.Parameter]:
    """The parameters that affect the last stage but not the one before, for any kind of network."""
    parameters = list(backbone.requires_grad_(True).parameters())
    features = FeatureNet(backbone, (3, 4))(
        torch.zeros(1, image_channels(backbone), _SIDE, _SIDE, device=parameters[0].device)
    )
    before, last = (
        torch.autograd.grad(features[stage].sum(), parameters, retain_graph=stage == 3, allow_unused=True)
        for stage in (3, 4)
    )
    groups = zip(parameters, before, last, strict=True)
    return [parameter for parameter, early, late in groups if early is None and late is not None]
