"""Adapts the first convolution of a network, with its weights, to another number of image channels."""

from torch import nn


def with_channels(net: nn.Module, channels: int) -> nn.Module:
    """Give the first convolution of a network `channels` inputs, in place; returns the network.

    Every new input gets the mean of the old inputs' filters, scaled so that the sum over all inputs is unchanged: an
    image with equal channels gives the same output as a grey image did before.
    """
    name, old = next((name, module) for name, module in net.named_modules() if isinstance(module, nn.Conv2d))
    if old.in_channels == channels:
        return net
    if old.groups != 1:
        raise ValueError(f"the first convolution {name} cannot take other channels")
    mean = old.weight.detach().mean(dim=1, keepdim=True)  # (O, 1, K, K)
    weight = mean.expand(-1, channels, -1, -1) * (old.in_channels / channels)  # (O, C, K, K)
    old.weight, old.in_channels = (
        nn.Parameter(weight.contiguous()),
        channels,
    )  # in place: it may be a subclass
    return net
