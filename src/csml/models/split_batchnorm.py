"""BatchNorm over sub-batches, which stops MoCo from cheating through batch statistics on one device (METHOD §7)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


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
        means = self.running_mean.new_zeros(splits, self.num_features)  # (S, C)
        variances = torch.ones_like(means)  # (S, C)
        parts = [
            # momentum 1 leaves the sub-batch's own mean and unbiased variance in the row
            F.batch_norm(part, mean, variance, self.weight, self.bias, training=True, momentum=1.0, eps=self.eps)
            for part, mean, variance in zip(input.tensor_split(splits), means, variances, strict=True)
        ]
        with torch.no_grad():
            self.running_mean.lerp_(means.mean(0), self.momentum)
            self.running_var.lerp_(variances.mean(0), self.momentum)
            self.num_batches_tracked.add_(1)
        return torch.cat(parts)


def split_batchnorm(module: nn.Module, splits: int) -> None:
    """Replace every BatchNorm2d inside `module` by one over `splits` sub-batches; weights and their names stay."""
    for name, child in module.named_children():
        if type(child) is nn.BatchNorm2d:
            split = SplitBatchNorm2d(child.num_features, splits, child.eps, child.momentum or 0.1)
            split.load_state_dict(child.state_dict())
            setattr(module, name, split)
        else:
            split_batchnorm(child, splits)
