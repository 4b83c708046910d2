"""The scenes of each batch, as a function of the seed: every scene once per pass, wide and tall ones separately."""

import itertools
from collections.abc import Iterator

import numpy as np
import torch

from csml.config import ScenesConfig
from csml.data.sampling import generator_for
from csml.data.scenes.loading import ScenePlan


def training_plans(
    sizes: np.ndarray, config: ScenesConfig, batch_size: int, seed: int, start: int
) -> Iterator[ScenePlan]:
    """Yield endless plans, from iteration `start` on.

    Args:
        sizes: `(N, 2)` height and width of each scene.
        config: shorter sides to draw from, and the probability of a flip.
        batch_size: scenes per batch.
        seed: of the run.
        start: number of completed iterations.
    """
    batches = itertools.islice(grouped_batches(sizes[:, 1] > sizes[:, 0], batch_size, seed), start, None)
    choices = np.array(config.short_sides)
    for iteration, ids in enumerate(batches, start):
        numbers = torch.rand(2, len(ids), generator=generator_for(seed, iteration, 0, 3)).numpy()
        sides = choices[np.minimum((numbers[0] * len(choices)).astype(np.int64), len(choices) - 1)]
        yield ScenePlan(ids, sides, numbers[1] < config.flip)


def grouped_batches(wide: np.ndarray, batch_size: int, seed: int) -> Iterator[np.ndarray]:
    """Yield endless batches of either wide or tall scenes; mixed batches would be padded to squares.

    Scenes that are too few for a batch at the end of a pass are completed with scenes of the next pass.
    """
    waiting: dict[bool, list[int]] = {True: [], False: []}
    for number in itertools.count():
        order = torch.randperm(len(wide), generator=generator_for(seed, number, 4)).tolist()
        for id in order:
            group = waiting[bool(wide[id])]
            group.append(id)
            if len(group) == batch_size:
                yield np.array(group)
                group.clear()
