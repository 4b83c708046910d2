"""The learning rate over the run."""

import math
from collections.abc import Sequence


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
