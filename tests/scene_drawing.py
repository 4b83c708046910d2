"""Drawn scenes with boxes and masks, which the tests write in every layout."""

from typing import NamedTuple

import numpy as np

from csml.synthetic import CLASS_NAMES, draw_scene

SIDE, COUNT = 64, 10


class Drawn(NamedTuple):
    """A picture and its objects."""

    name: str
    pixels: np.ndarray
    names: list[str]
    boxes: np.ndarray
    masks: np.ndarray


def drawn(count: int = COUNT) -> list[Drawn]:
    """Scenes with one to three objects of three classes."""
    made = []
    for number in range(count):
        rng = np.random.default_rng(number)
        labels = np.array([number % 3, *rng.integers(3, size=number % 3)])
        scene = draw_scene(SIDE, labels, rng, radius=(0.15, 0.25), min_visible=0.6)
        names = [CLASS_NAMES[label] for label in scene.labels.tolist()]
        made.append(Drawn(f"scene-{number}", scene.image, names, scene.boxes, scene.masks))
    return made
