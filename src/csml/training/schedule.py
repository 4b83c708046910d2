"""How long a run is, and the learning rate over it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Timetable:
    """A run counted in steps."""

    steps: int
    """of the whole run"""
    per_epoch: int
    """between two records of metrics; the last epoch may be shorter"""
    warmup: float = 0.0
    milestones: tuple[float, ...] | None = None
    """where the learning rate is multiplied by 0.1; None: half a cosine instead"""

    @property
    def epochs(self) -> int:
        return -(-self.steps // self.per_epoch)

    def rate(self, step: int, peak: float) -> float:
        """The learning rate of the step after `step` others."""
        if self.milestones is None:
            return learning_rate(step, self.steps, peak, self.warmup)
        return stepped(step, self.milestones, peak, self.warmup)


def learning_rate(step: int, total_steps: int, peak: float, warmup_steps: float = 0.0) -> float:
    """Linear from 0 to `peak` over the warm-up, then a half cosine that reaches 0 when the run is over."""
    if step < warmup_steps:
        return peak * (step + 1) / (warmup_steps + 1)
    progress = (step - warmup_steps) / max(1.0, total_steps - warmup_steps)
    return peak * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


def stepped(step: int, milestones: Sequence[float], peak: float, warmup_steps: float = 0.0) -> float:
    """Linear from 0 to `peak` over the warm-up, then times 0.1 at each milestone, in steps."""
    if step < warmup_steps:
        return peak * (step + 1) / (warmup_steps + 1)
    return peak * 0.1 ** sum(step >= milestone for milestone in milestones)
