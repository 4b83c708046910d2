"""BatchNorm that keeps its running statistics, in training mode too (docs/method.md#weights)."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from csml.models.batchnorm import activation_of, replace_batchnorm


class FixedBatchNorm(nn.Module):
    """Normalises with running statistics that never change; scale and shift are trained.

    It does not depend on the mode of the network, which changes between steps and searches, and it is not a subclass of
    torch's BatchNorm, so that it is never split or synchronised.
    """

    weight: Tensor
    bias: Tensor
    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor
    merged: bool = False
    """whether the preceding convolution already applies it (`merged_batchnorm.py`)"""

    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.eps, self.activation = norm.eps, activation_of(norm)
        for name, parameter in norm.named_parameters(recurse=False):
            self.register_parameter(name, nn.Parameter(parameter.detach().clone()))
        for name, buffer in norm.named_buffers(recurse=False):
            self.register_buffer(name, buffer.clone())

    def forward(self, input: Tensor) -> Tensor:
        """`(B, C, …)` → the same shape."""
        if self.merged:
            return self.activation(input)
        output = F.batch_norm(input, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        return self.activation(output)

    def scale_and_shift(self) -> tuple[Tensor, Tensor]:
        """Scale `(C,)` and shift `(C,)` of each channel."""
        scale = self.weight * torch.rsqrt(self.running_var + self.eps)
        return scale, self.bias - self.running_mean * scale


def fix_batchnorm(network: nn.Module) -> None:
    """Replace every BatchNorm in `network` by one with fixed statistics; weights and their names stay the same."""
    replace_batchnorm(network, lambda child: isinstance(child, _BatchNorm), FixedBatchNorm)
