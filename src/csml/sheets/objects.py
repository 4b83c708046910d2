"""Draws boxes, masks and names on a picture; a name is placed where it covers least, or left out if too crowded."""

import colorsys
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

Box = tuple[float, float, float, float]
Colour = tuple[int, int, int]

_MASK_OPACITY = 0.45
_FONT_SIZE = 11
_OTHER_NAME = 4.0
"""Cost of covering another name, relative to covering a box."""
_MOST_HIDDEN = 0.3
"""Largest share of a box that a name may cover."""


def draw_objects(
    picture: Image.Image,
    boxes: np.ndarray,
    labels: np.ndarray,
    names: Sequence[str],
    masks: np.ndarray | None = None,
    classes: int = 1,
    tile: int | None = None,
) -> Image.Image:
    """The picture with objects drawn on it. Each class is named at least once and has the same colour everywhere.

    Args:
        picture: RGB.
        boxes: `(O, 4)` corners in pixels of the picture.
        labels: `(O,)`; each has its colour.
        names: text of each object.
        masks: `(O, H, W)`, if there are any.
        classes: number of classes, for the colours.
        tile: longer side of the result in pixels; by default the picture's own.
    """
    colours = [class_colour(label, classes) for label in labels.tolist()]
    if masks is not None and len(masks):
        pixels = np.asarray(picture).astype(np.float32)
        for mask, colour in zip(masks.astype(bool), colours, strict=True):
            pixels[mask] = (1 - _MASK_OPACITY) * pixels[mask] + _MASK_OPACITY * np.array(colour)
        picture = Image.fromarray(pixels.astype(np.uint8))
    scale = 1.0 if tile is None else tile / max(picture.size)
    drawn = picture.resize((max(1, round(picture.width * scale)), max(1, round(picture.height * scale))))
    larger = max(1.0, max(drawn.size) / 800)
    draw, font = ImageDraw.Draw(drawn), ImageFont.load_default(size=_FONT_SIZE * larger)
    scaled: list[Box] = [tuple(box) for box in (boxes * scale).tolist()]
    for box, colour in zip(scaled, colours, strict=True):
        draw.rectangle(box, outline=colour, width=round(2 * larger))
    taken: list[Box] = []
    named: set[int] = set()
    for box, label, colour, name in zip(scaled, labels.tolist(), colours, names, strict=True):
        _, _, right, bottom = draw.textbbox((0, 0), name, font=font)
        place = place_name((right + 3, bottom + 3), box, scaled, taken, drawn.size)
        if label in named and covers_too_much(place, scaled, taken):
            continue
        named.add(label)
        taken.append(place)
        draw.rectangle(place, fill=colour)
        draw.text((place[0] + 1, place[1]), name, fill="black", font=font)
    return drawn


def place_name(
    size: tuple[float, float], box: Box, boxes: Sequence[Box], taken: Sequence[Box], picture: tuple[int, int]
) -> Box:
    """The position where a name of `size` (width, height) covers least: above, below, beside or inside its box.

    Args:
        size: of the name.
        box: the box that it names.
        boxes: all boxes, including `box`.
        taken: positions of other names.
        picture: width and height.
    """
    width, height = size
    x0, y0, x1, y1 = box
    corners = [
        (x0, y0 - height), (x1 - width, y0 - height), (x0, y1), (x1 - width, y1), (x1, y0), (x0 - width, y0),
        (x1, y1 - height), (x0 - width, y1 - height), (x0, y0),
    ]  # fmt: skip
    places: list[Box] = []
    for x, y in corners:
        x, y = min(max(0.0, x), picture[0] - width), min(max(0.0, y), picture[1] - height)
        places.append((x, y, x + width, y + height))

    def covered(place: Box) -> float:
        own = _shared(place, box)
        others = sum(_shared(place, other) for other in boxes) - own
        return 2 * own + others + _OTHER_NAME * sum(_shared(place, name) for name in taken)

    return min(places, key=covered)


def covers_too_much(place: Box, boxes: Sequence[Box], taken: Sequence[Box]) -> bool:
    """Whether a name at this position would overlap another one, or cover much of an object."""
    if any(_shared(place, name) > 0 for name in taken):
        return True
    areas = (max(1.0, (x1 - x0) * (y1 - y0)) for x0, y0, x1, y1 in boxes)
    return any(_shared(place, box) > _MOST_HIDDEN * area for box, area in zip(boxes, areas, strict=True))


def _shared(one: Box, other: Box) -> float:
    """Area of the intersection of two boxes."""
    width, height = min(one[2], other[2]) - max(one[0], other[0]), min(one[3], other[3]) - max(one[1], other[1])
    return max(0.0, width) * max(0.0, height)


def class_colour(label: int, classes: int) -> Colour:
    """Bright, and far from the colours of neighbouring classes."""
    r, g, b = colorsys.hsv_to_rgb(label / max(1, classes), 0.65, 1.0)
    return round(255 * r), round(255 * g), round(255 * b)
