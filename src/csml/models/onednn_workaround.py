"""Workaround for oneDNN, whose bfloat16 weight gradients are wrong for strided convolutions on single-point maps."""

from torch import Tensor, nn


class PointConv2d(nn.Conv2d):
    """A 3×3 convolution that ignores its stride on a map of one point, where it has no effect.

    On such maps, which occur for small crops of small images, the bfloat16 weight gradient of a strided convolution
    reads uninitialised memory on CPUs with AVX-512 (torch 2.15): it differs from run to run, or is NaN.
    """

    def forward(self, input: Tensor) -> Tensor:
        if input.shape[2:] != (1, 1):
            return super().forward(input)
        return nn.functional.conv2d(  # (B, C, 1, 1) → (B, C', 1, 1)
            input, self.weight, self.bias, padding=self.padding, dilation=self.dilation, groups=self.groups
        )


def guard_point_maps(net: nn.Module) -> None:
    """Turn every padded, strided 3×3 convolution of `net` into a `PointConv2d`."""
    for module in net.modules():
        if type(module) is not nn.Conv2d or module.stride == (1, 1):
            continue
        if (module.kernel_size, module.padding, module.dilation) == ((3, 3), (1, 1), (1, 1)):
            module.__class__ = PointConv2d  # only forward differs: weights stay, and no random number is drawn
