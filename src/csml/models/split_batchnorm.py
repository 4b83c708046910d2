"""BatchNorm over sub-batches, which stops MoCo from cheating through batch statistics on one device (METHOD §7)."""

from typing import Any

import torch
from torch import Tensor, nn

_norm, _norm_backward = torch.ops.aten.native_batch_norm, torch.ops.aten.native_batch_norm_backward


class SplitBatchNorm2d(nn.BatchNorm2d):
    """In training, each of `splits` consecutive sub-batches is normalised by its own statistics.

    The running statistics move once per forward, by the mean over the sub-batches: as many updates, and as long a
    memory, as a plain BatchNorm has, so that an encoder in eval mode is as good.
    """

    def __init__(self, channels: int, splits: int, eps: float, momentum: float) -> None:
        super().__init__(channels, eps=eps, momentum=momentum)
        self.splits = splits

    def forward(self, input: Tensor) -> Tensor:
        splits = min(self.splits, len(input) // 2)  # statistics of a single sample mean nothing
        if not self.training or splits <= 1:
            return super().forward(input)
        assert self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None
        assert self.momentum is not None
        normalized = _by_formula if torch.compiler.is_compiling() and len(input) % splits == 0 else _split_norm
        output, means, variances = normalized(input, self.weight, self.bias, splits, self.eps)
        with torch.no_grad():
            self.running_mean.lerp_(means.mean(0), self.momentum)
            self.running_var.lerp_(variances.mean(0), self.momentum)
            self.num_batches_tracked.add_(1)
        return output


class _SplitNorm(torch.autograd.Function):
    """Normalised sub-batches written side by side into one tensor: splitting and joining would copy it twice."""

    @staticmethod
    def forward(
        ctx: Any, input: Tensor, weight: Tensor, bias: Tensor, splits: int, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        output = torch.empty_like(input)
        means, inverse_stds = weight.new_empty(2, splits, input.shape[1])  # (S, C), (S, C)
        inputs = input.tensor_split(splits)
        parts = zip(inputs, output.tensor_split(splits), means.unbind(), inverse_stds.unbind(), strict=True)
        for x, y, mean, inverse_std in parts:
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
        of_parameters = []
        split = [t.tensor_split(splits) for t in (gradients[0], input, input_gradient)]
        for gradient, x, into, mean, inverse_std in zip(*split, means.unbind(), inverse_stds.unbind(), strict=True):
            of_input, *others = _norm_backward(
                gradient, x, weight, None, None, mean, inverse_std, True, ctx.eps, [True, True, True]
            )
            into.copy_(of_input)
            of_parameters += others
        of_weight, of_bias = torch.stack(of_parameters).view(splits, 2, -1).sum(dim=0)  # (C,), (C,)
        return input_gradient, of_weight, of_bias, None, None


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _split_norm(input: Tensor, weight: Tensor, bias: Tensor, splits: int, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    return _SplitNorm.apply(input, weight, bias, splits, eps)


def _by_formula(input: Tensor, weight: Tensor, bias: Tensor, splits: int, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """What the compiler can fuse with its surroundings: the same, for sub-batches of equal size."""
    exact = input.to(torch.promote_types(input.dtype, torch.float32))
    parts = exact.unflatten(0, (splits, -1))  # (S, B/S, C, H, W)
    variance, mean = torch.var_mean(parts, dim=(1, 3, 4), correction=0, keepdim=True)  # (S, 1, C, 1, 1)
    scale = weight[:, None, None] * torch.rsqrt(variance + eps)
    output = torch.addcmul(bias[:, None, None] - mean * scale, parts, scale).flatten(0, 1)  # (B, C, H, W)
    count = parts.shape[1] * parts.shape[3] * parts.shape[4]
    unbiased = variance.detach() * (count / (count - 1))
    return output.to(input.dtype), mean.detach().flatten(1), unbiased.flatten(1)


def split_batchnorm(module: nn.Module, splits: int) -> None:
    """Replace every BatchNorm2d inside `module` by one over `splits` sub-batches; weights and their names stay."""
    for name, child in module.named_children():
        if type(child) is nn.BatchNorm2d:
            split = SplitBatchNorm2d(child.num_features, splits, child.eps, child.momentum or 0.1)
            split.load_state_dict(child.state_dict())
            setattr(module, name, split)
        else:
            split_batchnorm(child, splits)
