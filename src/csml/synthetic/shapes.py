"""The object classes: each is an outline whose proportions vary between instances."""

from collections.abc import Callable

import numpy as np
from numpy.random import Generator

Outline = np.ndarray
"""Vertices `(V, 2)` of a closed polygon, x right and y down, roughly inside [-1, 1]²."""


def _polar(radius: np.ndarray, angle: np.ndarray) -> Outline:
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)  # (V, 2)


def _turns(points: int) -> np.ndarray:
    return np.linspace(0, 2 * np.pi, points, endpoint=False) - np.pi / 2


def _ellipse(rng: Generator) -> list[Outline]:
    return [_polar(np.ones(48), _turns(48)) * [1, rng.uniform(0.65, 1.0)]]


def _ring(rng: Generator) -> list[Outline]:
    outer = _polar(np.ones(48), _turns(48)) * [1, rng.uniform(0.75, 1.0)]
    return [outer, outer * rng.uniform(0.45, 0.65)]


def _crescent(rng: Generator) -> list[Outline]:
    # The outer arc, then back along the arc of a shifted circle through the same two tips.
    tip, bite = rng.uniform(0.5, 1.0), rng.uniform(0.35, 0.6)
    outer = np.linspace(tip, 2 * np.pi - tip, 40)
    back = np.linspace(1, -1, 40)
    inner_x = np.cos(tip) - bite * np.cos(back * np.pi / 2) + 0.0
    inner = np.stack([inner_x, -back * np.sin(tip)], axis=1)
    return [np.concatenate([_polar(np.ones(40), outer), inner])]


def _triangle(rng: Generator) -> list[Outline]:
    width, lean = rng.uniform(0.7, 1.0), rng.uniform(-0.35, 0.35)
    return [np.array([[lean, -1.0], [width, 0.8], [-width, 0.8]])]


def _rectangle(rng: Generator) -> list[Outline]:
    w, h = 0.95, rng.uniform(0.5, 0.95)
    return [np.array([[-w, -h], [w, -h], [w, h], [-w, h]])]


def _star(rng: Generator) -> list[Outline]:
    inner = rng.uniform(0.36, 0.5)
    return [_polar(np.tile([1.0, inner], 5), _turns(10))]


def _cross(rng: Generator) -> list[Outline]:
    a, b = rng.uniform(0.22, 0.38, size=2)
    h = rng.uniform(0.8, 1.0)
    corners = [
        (-a, -h),
        (a, -h),
        (a, -b),
        (1, -b),
        (1, b),
        (a, b),
        (a, h),
        (-a, h),
        (-a, b),
        (-1, b),
        (-1, -b),
        (-a, -b),
    ]
    return [np.array(corners)]


def _heart(rng: Generator) -> list[Outline]:
    t = _turns(60)
    x = np.sin(t) ** 3
    y = -(13 * np.cos(t) - 5 * np.cos(2 * t) - 2 * np.cos(3 * t) - np.cos(4 * t)) / 16
    return [np.stack([x * rng.uniform(0.85, 1.1), y * rng.uniform(0.85, 1.05)], axis=1)]


def _arrow(rng: Generator) -> list[Outline]:
    shaft, neck, wing = rng.uniform(0.16, 0.3), rng.uniform(-0.1, 0.25), rng.uniform(0.65, 0.95)
    return [np.array([(1, 0), (neck, -wing), (neck, -shaft), (-1, -shaft), (-1, shaft), (neck, shaft), (neck, wing)])]


def _flower(rng: Generator) -> list[Outline]:
    t, depth = _turns(90), rng.uniform(0.13, 0.24)
    return [_polar((1 - depth) + depth * np.cos(rng.integers(6, 9) * t), t)]


_OUTLINES: dict[str, Callable[[Generator], list[Outline]]] = {
    "arrow": _arrow,
    "crescent": _crescent,
    "cross": _cross,
    "ellipse": _ellipse,
    "flower": _flower,
    "heart": _heart,
    "rectangle": _rectangle,
    "ring": _ring,
    "star": _star,
    "triangle": _triangle,
}

CLASS_NAMES: tuple[str, ...] = tuple(_OUTLINES)


def outline(label: int, rng: Generator) -> list[Outline]:
    """One instance of class `label`: its outer polygon, then its hole if it has one."""
    return _OUTLINES[CLASS_NAMES[label]](rng)
