"""What all variants of BatchNorm share: taking the place of another in a network."""

from collections.abc import Callable
from typing import Any

from torch import nn


def activation_of(norm: Any) -> nn.Module:
    """What timm computes inside of a BatchNorm after the normalisation; the identity for torch's own."""
    if not hasattr(norm, "act"):
        return nn.Identity()
    return nn.Sequential(norm.drop, norm.act)


def replace_batchnorm(
    network: nn.Module, wanted: Callable[[nn.Module], bool], replacement: Callable[[nn.Module], nn.Module]
) -> None:
    """Put `replacement(norm)` in the place of every wanted BatchNorm; weights, their names and what learns stay."""
    for name, child in network.named_children():
        if wanted(child):
            new = replacement(child)
            new.load_state_dict(child.state_dict())
            for own, theirs in zip(new.parameters(), child.parameters(), strict=True):
                own.requires_grad_(theirs.requires_grad)
            setattr(network, name, new)
        else:
            replace_batchnorm(child, wanted, replacement)
