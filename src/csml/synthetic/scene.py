"""Draws one scene: a background, objects on top of each other, and light over everything."""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from PIL import Image, ImageChops, ImageDraw, ImageFilter

from csml.synthetic.shapes import outline
from csml.synthetic.surface import background, blend, pattern, ramp, two_colours

_SUPERSAMPLING = 4


@dataclass(frozen=True)
class Scene:
    """A drawn image and the ground truth of its O objects."""

    image: np.ndarray
    """uint8 `(size, size, 3)`"""
    labels: np.ndarray
    """int64 `(O,)`, indices into CLASS_NAMES, from back to front"""
    boxes: np.ndarray
    """float32 `(O, 4)`: x0, y0, x1, y1 in pixels, around the visible region of the object"""
    masks: np.ndarray
    """bool `(O, size, size)`: the visible region of the object"""


def draw_scene(
    size: int,
    labels: np.ndarray,
    rng: Generator,
    *,
    radius: tuple[float, float] = (0.28, 0.42),
    clutter: int = 5,
    min_visible: float = 0.3,
) -> Scene:
    """Draw one object per label, with a radius of `radius` × `size`.

    An object that would leave less than `min_visible` of another one visible is drawn elsewhere; after ten tries it is
    left out.
    """
    ground = two_colours(None, rng)
    canvas = background(size, clutter, ground, rng)  # (S, S, 3)
    covers: list[np.ndarray] = []  # visible region of each object so far, (S, S) in [0, 1]
    areas: list[float] = []
    kept: list[int] = []
    for label in labels:
        for _ in range(10):
            cover = _cover(size, int(label), rng.uniform(*radius), rng)  # (S, S)
            left = [(c * (1 - cover)).sum() / a for c, a in zip(covers, areas, strict=True)]
            if all(share >= min_visible for share in left):
                break
        else:
            continue
        canvas = _paint(canvas, cover, ground, rng)
        covers = [c * (1 - cover) for c in covers] + [cover]
        areas.append(float(cover.sum()))
        kept.append(int(label))
    light = 0.75 + 0.4 * ramp(size, rng)[..., None]
    image = (canvas * light + rng.normal(0, 0.015, canvas.shape)).clip(0, 1)
    masks = np.stack([c > 0.5 for c in covers]) if covers else np.zeros((0, size, size), bool)
    return Scene(
        image=(image * 255).round().astype(np.uint8),
        labels=np.array(kept, dtype=np.int64),
        boxes=_boxes(masks),
        masks=masks,
    )


def _cover(size: int, label: int, radius: float, rng: Generator) -> np.ndarray:
    """Coverage `(size, size)` in [0, 1] of one object with a random pose and position."""
    turn = rng.uniform(-0.35, 0.35)
    shear, stretch = rng.uniform(-0.15, 0.15), rng.uniform(0.85, 1.15)
    mirror = rng.choice([-1.0, 1.0])
    pose = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    pose = pose @ np.array([[mirror * stretch, shear], [0.0, 1 / stretch]]) * radius
    place = rng.uniform(radius, 1 - radius, 2)
    side = size * _SUPERSAMPLING
    drawn = Image.new("L", (side, side))
    draw = ImageDraw.Draw(drawn)
    for hole, polygon in enumerate(outline(label, rng)):
        corners = (polygon @ pose.T + place) * side  # (V, 2)
        draw.polygon([tuple(corner) for corner in corners.tolist()], fill=0 if hole else 255)
    return np.asarray(drawn.resize((size, size), Image.Resampling.BOX), dtype=np.float32) / 255


def _paint(canvas: np.ndarray, cover: np.ndarray, ground: np.ndarray, rng: Generator) -> np.ndarray:
    """Draw a soft shadow, then the object with its pattern and a bright rim, onto the canvas `(S, S, 3)`."""
    size = len(cover)
    mask = Image.fromarray((cover * 255).astype(np.uint8))
    reach = max(1, round(size * 0.05))
    shift_x, shift_y = (int(s) for s in rng.integers(-reach, reach + 1, 2))
    soft = ImageChops.offset(mask.filter(ImageFilter.GaussianBlur(reach)), shift_x, shift_y)
    shadow = np.asarray(soft, dtype=np.float32)[..., None] / 255
    canvas = canvas * (1 - rng.uniform(0.1, 0.4) * shadow)
    fill = blend(pattern(size, rng), two_colours(ground, rng))
    rim = cover - np.asarray(ImageChops.offset(mask, -shift_x, -shift_y), dtype=np.float32) / 255
    fill = (fill + rng.uniform(0.1, 0.3) * rim[..., None]).clip(0, 1)
    alpha = cover[..., None]
    return canvas * (1 - alpha) + fill * alpha


def _boxes(masks: np.ndarray) -> np.ndarray:
    boxes = np.zeros((len(masks), 4), np.float32)
    for box, mask in zip(boxes, masks, strict=True):
        rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
        if len(rows):
            box[:] = columns[0], rows[0], columns[-1] + 1, rows[-1] + 1
    return boxes
