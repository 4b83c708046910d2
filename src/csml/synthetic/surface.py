"""Surfaces of a scene: two-colour patterns, backgrounds with clutter, light. None of them depends on the class."""

import numpy as np
from numpy.random import Generator
from PIL import Image, ImageDraw

Plane = np.ndarray
"""A float image `(size, size)` with values in [0, 1]."""


def grid(size: int) -> tuple[Plane, Plane]:
    """Coordinates x, y in [-1, 1] of the pixel centres, each `(size, size)`."""
    axis = (np.arange(size, dtype=np.float32) + 0.5) / size * 2 - 1
    return np.broadcast_to(axis[None, :], (size, size)), np.broadcast_to(axis[:, None], (size, size))


def ramp(size: int, rng: Generator) -> Plane:
    """A linear ramp from 0 to 1 in a random direction."""
    x, y = grid(size)
    angle = rng.uniform(0, 2 * np.pi)
    return 0.5 + 0.35 * (x * np.cos(angle) + y * np.sin(angle))


def noise(size: int, cells: int, rng: Generator) -> Plane:
    """Smooth noise with about `cells` bumps along each side."""
    small = Image.fromarray(rng.integers(0, 256, (cells + 1, cells + 1), dtype=np.uint8))
    return np.asarray(small.resize((size, size), Image.Resampling.BICUBIC), dtype=np.float32) / 255


_FILLS = ("ramp", "ramp", "stripes", "checks", "dots", "marble", "plain", "plain", "plain", "plain")
"""Drawn uniformly: a fill that is listed twice is twice as frequent."""


def pattern(size: int, rng: Generator) -> Plane:
    """A random fill with a random direction and period."""
    fill = _FILLS[rng.integers(len(_FILLS))]
    if fill == "plain":
        return np.zeros((size, size), np.float32)
    if fill == "ramp":
        return ramp(size, rng)
    if fill == "marble":
        return (noise(size, int(rng.integers(3, 7)), rng) > 0.5).astype(np.float32)
    x, y = grid(size)
    angle, period = rng.uniform(0, np.pi), rng.uniform(0.25, 0.5)
    phase = rng.uniform(0, 2 * np.pi, 2)
    u = np.sin((x * np.cos(angle) + y * np.sin(angle)) * 2 * np.pi / period + phase[0])
    v = np.sin((y * np.cos(angle) - x * np.sin(angle)) * 2 * np.pi / period + phase[1])
    marks = {"stripes": u > 0, "checks": u * v > 0, "dots": u + v > 0.7}
    return marks[fill].astype(np.float32)


_LUMA = np.array([0.299, 0.587, 0.114])


def two_colours(away_from: np.ndarray | None, rng: Generator) -> np.ndarray:
    """Two similar colours `(2, 3)` in [0, 1]; clearly lighter or darker than the pair `away_from`, if it is given."""
    base = rng.uniform(0.1, 0.9, 3)
    for _ in range(20):
        if away_from is None or abs(float((base - away_from.mean(0)) @ _LUMA)) > 0.3:
            break
        base = rng.uniform(0.0, 1.0, 3)
    return (base + rng.uniform(-0.15, 0.15, (2, 3))).clip(0, 1)


def blend(plane: Plane, pair: np.ndarray) -> np.ndarray:
    """Colour a plane: 0 becomes `pair[0]`, 1 becomes `pair[1]`; `(size, size, 3)`."""
    return (pair[0] + plane[..., None] * (pair[1] - pair[0])).astype(np.float32)


def background(size: int, clutter: int, pair: np.ndarray, rng: Generator) -> np.ndarray:
    """A smooth background with `clutter` random strokes and blobs; `(size, size, 3)` in [0, 1]."""
    plane = 0.6 * ramp(size, rng) + 0.4 * noise(size, int(rng.integers(2, 6)), rng)
    picture = Image.fromarray((blend(plane.clip(0, 1), pair) * 255).astype(np.uint8)).resize((2 * size, 2 * size))
    draw = ImageDraw.Draw(picture)
    for _ in range(clutter):
        r, g, b = (255 * (pair[rng.integers(2)] + rng.normal(0, 0.08, 3)).clip(0, 1)).astype(int).tolist()
        centre = rng.uniform(0, 2 * size, 2)
        if rng.random() < 0.5:
            end = centre + rng.normal(0, 0.5 * size, 2)
            draw.line([*centre, *end], fill=(r, g, b), width=max(1, round(size * rng.uniform(0.03, 0.1))))
        else:
            turns = np.sort(rng.uniform(0, 2 * np.pi, 7))
            reach = size * rng.uniform(0.08, 0.3) * rng.uniform(0.6, 1.0, 7)
            points = centre + np.stack([reach * np.cos(turns), reach * np.sin(turns)], axis=1)
            draw.polygon([tuple(p) for p in points.tolist()], fill=(r, g, b))
    return np.asarray(picture.resize((size, size), Image.Resampling.BOX), dtype=np.float32) / 255
