"""Convolutions that also apply the fixed BatchNorm after them: the same function in fewer passes over memory.

With fixed statistics a BatchNorm is a scale and a shift of each channel, which can be multiplied into the weights of
the preceding convolution (docs/method.md#weights). Modules, weights and their names stay the same.
"""

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from csml.models.backbones import Backbone, in_eval_mode, noise_images, stage_outputs
from csml.models.fixed_batchnorm import FixedBatchNorm, fix_batchnorm
from csml.models.onednn_workaround import PointConv2d

_TOLERANCE = 1e-3
"""Largest difference between two outputs that counts as rounding, relative to the largest value."""


class MergedConv2d(nn.Conv2d):
    """Scales its weights by the BatchNorm after it, and adds its shift. Both remain trainable."""

    norm: tuple[FixedBatchNorm] | None
    """in a tuple, so that the BatchNorm is not registered twice; None: it is folded into the weights"""
    same: bool
    """pads as TensorFlow does"""
    guarded: bool
    """was a `PointConv2d`"""

    def forward(self, input: Tensor) -> Tensor:
        weight, bias = self._merged()
        stride = (1, 1) if self.guarded and input.shape[2:] == (1, 1) else self.stride
        if self.same:
            from timm.layers.padding import pad_same

            input = pad_same(input, list(self.kernel_size), list(self.stride), list(self.dilation))
        return F.conv2d(input, weight, bias, stride, self.padding, self.dilation, self.groups)

    def _merged(self) -> tuple[Tensor, Tensor | None]:
        """The weights `(C', C, K, K)` and the bias `(C',)` of both together."""
        if self.norm is None:
            return self.weight, self.bias
        scale, shift = self.norm[0].scale_and_shift()  # (C',), (C',)
        bias = shift if self.bias is None else torch.addcmul(shift, self.bias, scale)
        return self.weight * scale[:, None, None, None], bias

    @torch.no_grad()
    def fold(self) -> None:
        """Fold the BatchNorm into the weights, for inference only."""
        weight, bias = self._merged()
        assert bias is not None
        self.weight, self.bias = nn.Parameter(weight, False), nn.Parameter(bias, False)
        self.norm = None


def for_use(network: Backbone) -> Backbone:
    """A faster copy for inference, in eval mode: every BatchNorm is fixed, and merged where possible."""
    network = copy.deepcopy(network).eval().requires_grad_(False)
    fix_and_merge_batchnorm(network)
    for module in network.modules():
        if isinstance(module, MergedConv2d):
            module.fold()
    return network


def fix_and_merge_batchnorm(network: Backbone) -> None:
    """Fix every BatchNorm of a network, and merge it where possible, in place."""
    fix_batchnorm(network)
    merge_batchnorm(network)


def merge_batchnorm(network: Backbone) -> None:
    """Let convolutions apply the fixed BatchNorm that directly follows them, in place.

    The order is found by running the network. If its outputs change, the network is left as it was.
    """
    if not any(isinstance(module, FixedBatchNorm) for module in network.modules()):
        return
    pairs, before = _followed(network)
    kinds = [type(conv) for conv, _ in pairs]
    for conv, norm in pairs:
        conv.same, conv.guarded, conv.norm = _pads_same(conv), type(conv) is PointConv2d, (norm,)
        conv.__class__, norm.merged = MergedConv2d, True  # only forward differs: weights and their names stay
    if not _same(before, _outputs(network)):
        for (conv, norm), kind in zip(pairs, kinds, strict=True):
            conv.__class__, norm.merged = kind, False


def _followed(network: Backbone) -> tuple[list[tuple[Any, FixedBatchNorm]], list[Tensor]]:
    """Convolutions whose output goes into a fixed BatchNorm, each with that BatchNorm, and the outputs of the
    network."""
    made: dict[int, tuple[nn.Module, Tensor]] = {}  # holds the tensors, so that no two have the same id
    pairs: list[tuple[Any, FixedBatchNorm]] = []

    def after(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        made[id(output)] = module, output

    def before(module: Any, inputs: tuple[Tensor, ...]) -> None:
        if id(inputs[0]) in made:
            pairs.append((made[id(inputs[0])][0], module))

    modules = list(network.modules())
    hooks = [each.register_forward_hook(after) for each in modules if _is_known(each)]
    hooks += [
        each.register_forward_pre_hook(before)
        for each in modules
        if isinstance(each, FixedBatchNorm) and hasattr(each, "weight")
    ]
    try:
        outputs = _outputs(network)
    finally:
        for hook in hooks:
            hook.remove()
    alone = [pair for pair in pairs if sum(pair[0] is conv or pair[1] is norm for conv, norm in pairs) == 1]
    return alone, outputs


def _is_known(module: nn.Module) -> bool:
    """Whether it is a type of convolution that `MergedConv2d` can replace."""
    plain = type(module) in (nn.Conv2d, PointConv2d) or _pads_same(module)
    return plain and module.padding_mode == "zeros"


def _pads_same(module: nn.Module) -> bool:
    return type(module).__name__ == "Conv2dSame" and type(module).__module__.startswith("timm.")


@torch.no_grad()
def _outputs(network: Backbone) -> list[Tensor]:
    """The maps of all stages and the feature for noise images."""
    with in_eval_mode(network):
        maps, feature = stage_outputs(network, noise_images(network))
    return [*maps.values(), feature]


def _same(ones: list[Tensor], others: list[Tensor]) -> bool:
    return all((a - b).abs().max() <= _TOLERANCE * a.abs().max() for a, b in zip(ones, others, strict=True))
