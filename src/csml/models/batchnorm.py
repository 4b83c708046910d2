"""Shared by all variants of BatchNorm: replacing the BatchNorm of a network."""

from collections.abc import Callable
from typing import Any

from torch import nn


def activation_of(norm: Any) -> nn.Module:
    """The activation inside timm's BatchNorm; the identity for torch's own."""
    if not hasattr(norm, "act"):
        return nn.Identity()
    return nn.Sequential(norm.drop, norm.act)


def replace_batchnorm(
    network: nn.Module, wanted: Callable[[nn.Module], bool], replacement: Callable[[nn.Module], nn.Module]
) -> None:
    """Replace every matching BatchNorm by `replacement(norm)`; weights, their names and requires_grad stay the same."""
    for name, child in network.named_children():
        if wanted(child):
            new = replacement(child)
            new.load_state_dict(child.state_dict())
            for own, theirs in zip(new.parameters(), child.parameters(), strict=True):
                own.requires_grad_(theirs.requires_grad)
            setattr(network, name, new)
        else:
            replace_batchnorm(child, wanted, replacement)
