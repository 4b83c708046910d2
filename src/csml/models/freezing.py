"""Freezes the first stages of a backbone."""

from torch import nn
from torchvision.models.resnet import ResNet

from csml.config import STAGES
from csml.models.backbones import Backbone
from csml.models.timm_networks import stage_modules


def freeze_stages(net: Backbone, count: int) -> None:
    """Exclude the weights up to the end of stage `count` from training; 0: none."""
    if count == 0:
        return
    modules = {s: f"layer{s}" for s in STAGES} if isinstance(net, ResNet) else stage_modules(net)
    for parameter in _up_to(net, modules[count]):
        parameter.requires_grad_(False)


def _up_to(net: nn.Module, module: str) -> list[nn.Parameter]:
    """The weights of the network, in its own order, up to the last one of a module."""
    names = [name for name, _ in net.named_parameters()]
    last = max(place for place, name in enumerate(names) if name.startswith(f"{module}."))
    return [parameter for _, parameter in list(net.named_parameters())[: last + 1]]
