"""BatchNorm over the batch of all processes, on GPUs (torch's) and on CPUs (docs/method.md#batchnorm)."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from csml.distributed.world import World
from csml.models.batchnorm import activation_of, replace_batchnorm


class SharedBatchNorm(_BatchNorm):
    """Normalises by the mean and variance over all processes during training; their batches may differ in size."""

    def __init__(
        self, channels: int, eps: float = 1e-5, momentum: float | None = 0.1, activation: nn.Module | None = None
    ) -> None:
        super().__init__(channels, eps, momentum)
        self.activation = activation or nn.Identity()

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected (B, C, …), got {tuple(input.shape)}")

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return self.activation(super().forward(input))
        assert self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None
        exact = input.to(torch.promote_types(input.dtype, torch.float32))
        others = [dim for dim in range(input.dim()) if dim != 1]
        # Two exchanges, mean then variance: E[x²] − E[x]² in a single one would lose precision.
        count = exact.new_tensor([input.numel() / input.shape[1]])
        sums = _summed(torch.cat([exact.sum(others), count]))  # (C + 1,)
        total = sums[-1].detach()
        mean = sums[:-1] / total  # (C,)
        centred = exact - _across(mean, input)
        variance = _summed(centred.square().sum(others)) / total  # (C,)
        output = centred * _across(self.weight * torch.rsqrt(variance + self.eps), input) + _across(self.bias, input)
        with torch.no_grad():
            momentum = self.momentum or 0.1
            self.running_mean.lerp_(mean, momentum)
            self.running_var.lerp_(variance * (total / (total - 1)), momentum)
            self.num_batches_tracked.add_(1)
        return self.activation(output.to(input.dtype))


class _Sum(torch.autograd.Function):
    """Sum over the processes. A value contributes to the sum of every process, so its gradient is summed as well."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        values = values.clone()
        dist.all_reduce(values)
        return values

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        gradient = gradients[0].clone(memory_format=torch.contiguous_format)
        dist.all_reduce(gradient)
        return gradient


def _summed(values: Tensor) -> Tensor:
    return _Sum.apply(values)


def _across(values: Tensor, input: Tensor) -> Tensor:
    """Reshape `(C,)` to broadcast against `input` `(B, C, …)`."""
    return values.view(-1, *[1] * (input.dim() - 2))


def synchronised(network: nn.Module, world: World, device: torch.device) -> nn.Module:
    """Replace every BatchNorm in `network` by one over all processes; weights and their names stay the same."""
    if world.size == 1:
        return network
    if device.type == "cuda":
        from timm.layers.norm_act import (
            convert_sync_batchnorm,  # torch's own loses the activation inside timm's BatchNorm
        )

        return convert_sync_batchnorm(network)

    def shared(norm: Any) -> nn.Module:
        return SharedBatchNorm(norm.num_features, norm.eps, norm.momentum, activation_of(norm)).to(norm.weight)

    replace_batchnorm(network, lambda child: isinstance(child, nn.BatchNorm1d | nn.BatchNorm2d), shared)
    return network
