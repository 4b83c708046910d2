"""BatchNorm over sub-batches, so that batch statistics do not leak on one device (docs/method.md#batchnorm)."""

from typing import Any

import torch
from torch import Tensor, nn

from csml.models.batchnorm import activation_of, replace_batchnorm

_norm, _norm_backward = torch.ops.aten.native_batch_norm, torch.ops.aten.native_batch_norm_backward


class SplitBatchNorm2d(nn.BatchNorm2d):
    """Normalises each of `splits` consecutive sub-batches by its own statistics during training.

    The running statistics are updated once per forward, with the mean over the sub-batches. They average over as many
    batches as in plain BatchNorm, so an encoder in eval mode is just as good.
    """

    def __init__(
        self, channels: int, splits: int, eps: float, momentum: float, activation: nn.Module | None = None
    ) -> None:
        super().__init__(channels, eps=eps, momentum=momentum)
        self.splits = splits
        self.activation = activation or nn.Identity()

    def forward(self, input: Tensor) -> Tensor:
        splits = min(self.splits, len(input) // 2)  # a sub-batch needs at least two samples
        if not self.training or splits <= 1:
            return self.activation(super().forward(input))
        assert self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None
        assert self.momentum is not None
        normalized = _by_formula if torch.compiler.is_compiling() and len(input) % splits == 0 else _split_norm
        output, means, variances = normalized(input, self.weight, self.bias, splits, self.eps)
        with torch.no_grad():
            self.running_mean.lerp_(means.mean(0), self.momentum)
            self.running_var.lerp_(variances.mean(0), self.momentum)
            self.num_batches_tracked.add_(1)
        return self.activation(output)


class _SplitNorm(torch.autograd.Function):
    """Writes the normalised sub-batches directly into one tensor; splitting and concatenating would copy it twice."""

    @staticmethod
    def forward(
        ctx: Any, input: Tensor, weight: Tensor, bias: Tensor, splits: int, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        output = torch.empty_like(input)
        means, inverse_stds = weight.new_empty(2, splits, input.shape[1])  # (S, C), (S, C)
        inputs = input.tensor_split(splits)
        batches = zip(inputs, output.tensor_split(splits), means.unbind(), inverse_stds.unbind(), strict=True)
        for x, y, mean, inverse_std in batches:
            _norm.out(
                x, weight, bias, None, None, True, 0.0, eps, out=y, save_mean=mean, save_invstd=inverse_std
            )  # fmt: skip
        ctx.save_for_backward(input, weight, means, inverse_stds)
        ctx.eps = eps
        variances = inverse_stds.pow(-2) - eps  # (S, C)
        counts = [x.numel() // x.shape[1] for x in inputs]
        torch._foreach_mul_(list(variances.unbind()), [n / (n - 1) for n in counts])  # unbiased
        ctx.mark_non_differentiable(means, variances)
        return output, means, variances

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        input, weight, means, inverse_stds = ctx.saved_tensors
        splits = len(means)
        input_gradient = torch.empty_like(input)
        parameter_gradients = []
        split = [t.tensor_split(splits) for t in (gradients[0], input, input_gradient)]
        for gradient, x, target, mean, inverse_std in zip(*split, means.unbind(), inverse_stds.unbind(), strict=True):
            x_gradient, *others = _norm_backward(
                gradient, x, weight, None, None, mean, inverse_std, True, ctx.eps, [True, True, True]
            )
            target.copy_(x_gradient)
            parameter_gradients += others
        weight_gradient, bias_gradient = torch.stack(parameter_gradients).view(splits, 2, -1).sum(dim=0)  # (C,), (C,)
        return input_gradient, weight_gradient, bias_gradient, None, None


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _split_norm(input: Tensor, weight: Tensor, bias: Tensor, splits: int, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    return _SplitNorm.apply(input, weight, bias, splits, eps)


def _by_formula(input: Tensor, weight: Tensor, bias: Tensor, splits: int, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """`_split_norm` for sub-batches of equal size, in operations that torch.compile can fuse with others."""
    exact = input.to(torch.promote_types(input.dtype, torch.float32))
    batches = exact.unflatten(0, (splits, -1))  # (S, B/S, C, H, W)
    variance, mean = torch.var_mean(batches, dim=(1, 3, 4), correction=0, keepdim=True)  # (S, 1, C, 1, 1)
    scale = weight[:, None, None] * torch.rsqrt(variance + eps)
    output = torch.addcmul(bias[:, None, None] - mean * scale, batches, scale).flatten(0, 1)  # (B, C, H, W)
    count = batches.shape[1] * batches.shape[3] * batches.shape[4]
    unbiased = variance.detach() * (count / (count - 1))
    return output.to(input.dtype), mean.detach().flatten(1), unbiased.flatten(1)


def split_batchnorm(module: nn.Module, splits: int) -> None:
    """Replace every BatchNorm2d in `module` by one over `splits` sub-batches; weights and their names stay the same."""

    def split(norm: Any) -> nn.Module:
        return SplitBatchNorm2d(norm.num_features, splits, norm.eps, norm.momentum or 0.1, activation_of(norm))

    replace_batchnorm(module, lambda child: isinstance(child, nn.BatchNorm2d), split)
