"""Strided convolutions on maps of a single point, whose weight gradient oneDNN gets wrong in bfloat16."""

from torch import Tensor, nn


class PointConv2d(nn.Conv2d):
    """A 3×3 convolution with a stride that is not used on a map of one point, where it would change nothing.

    On such maps, which small crops of small images have, the bfloat16 weight gradient of a strided convolution reads
    uninitialised memory on CPUs with AVX-512 (torch 2.15): it differs from run to run, or is NaN.
    """

    def forward(self, input: Tensor) -> Tensor:
        if input.shape[2:] != (1, 1):
            return super().forward(input)
        return nn.functional.conv2d(  # (B, C, 1, 1) → (B, C', 1, 1)
            input, self.weight, self.bias, padding=self.padding, dilation=self.dilation, groups=self.groups
        )


def guard_point_maps(net: nn.Module) -> None:
    """Make every padded 3×3 convolution of `net` that has a stride a `PointConv2d`."""
    for module in net.modules():
        if type(module) is not nn.Conv2d or module.stride == (1, 1):
            continue
        if (module.kernel_size, module.padding, module.dilation) == ((3, 3), (1, 1), (1, 1)):
            module.__class__ = PointConv2d  # only forward differs: weights stay, and no random number is drawn
