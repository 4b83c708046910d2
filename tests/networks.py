"""Networks for tests."""

import torch
from torch import nn

from csml.models import build_backbone


def trained(name: str) -> nn.Module:
    """A network whose BatchNorm has statistics, scales and shifts of its own, as after a training."""
    torch.manual_seed(0)
    net = build_backbone(name)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean, -0.5, 0.5)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.5, 0.5)
    return net
