"""The length of a run, and the learning rate over it (docs/method.md#schedule)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Timetable:
    """The length of a run in steps, and its learning-rate schedule."""

    steps: int
    """steps of the whole run"""
    per_epoch: int
    """steps between two records of metrics; the last epoch may be shorter"""
    warmup: float = 0.0
    milestones: tuple[float, ...] | None = None
    """steps at which the learning rate is multiplied by 0.1; None: half a cosine instead"""

    @property
    def epochs(self) -> int:
        return -(-self.steps // self.per_epoch)

    def rate(self, step: int, peak: float) -> float:
        """The learning rate after `step` steps."""
        if self.milestones is None:
            return learning_rate(step, self.steps, peak, self.warmup)
        return stepped(step, self.milestones, peak, self.warmup)


def learning_rate(step: int, total_steps: int, peak: float, warmup_steps: float = 0.0) -> float:
    """Linear from 0 to `peak` over the warm-up, then half a cosine that reaches 0 at the end of the run."""
    if step < warmup_steps:
        return peak * (step + 1) / (warmup_steps + 1)
    progress = (step - warmup_steps) / max(1.0, total_steps - warmup_steps)
    return peak * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


def stepped(step: int, milestones: Sequence[float], peak: float, warmup_steps: float = 0.0) -> float:
    """Linear from 0 to `peak` over the warm-up, then times 0.1 at each milestone."""
    if step < warmup_steps:
        return peak * (step + 1) / (warmup_steps + 1)
    return peak * 0.1 ** sum(step >= milestone for milestone in milestones)
