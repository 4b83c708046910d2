"""Outlines of masks as polygons, along the edges of their pixels."""

import numpy as np


def outlines(mask: np.ndarray) -> list[list[float]]:
    """The outer borders of a mask `(H, W)`: one polygon x, y, x, y, … per region, in COCO's form; holes are filled."""
    filled = np.pad(mask.astype(bool), 1)
    edges: dict[tuple[int, int], list[tuple[int, int]]] = {}  # from corner to corner, with the region on the right
    inside = filled[1:-1, 1:-1]
    for open_side, start, end in (
        (inside & ~filled[:-2, 1:-1], (0, 0), (1, 0)),
        (inside & ~filled[1:-1, 2:], (1, 0), (1, 1)),
        (inside & ~filled[2:, 1:-1], (1, 1), (0, 1)),
        (inside & ~filled[1:-1, :-2], (0, 1), (0, 0)),
    ):
        for y, x in np.argwhere(open_side).tolist():
            edges.setdefault((x + start[0], y + start[1]), []).append((x + end[0], y + end[1]))
    found = []
    while edges:
        corners = _loop(edges)
        if _area(corners) > 0:  # the border of a hole has the opposite orientation
            found.append([float(value) for corner in corners for value in corner])
    return found


def _loop(edges: dict[tuple[int, int], list[tuple[int, int]]]) -> list[tuple[int, int]]:
    """Take the edges of one border out of `edges`; its corners, without those on straight lines."""
    start = here = next(iter(edges))
    came = (0, 0)
    corners: list[tuple[int, int]] = []
    while True:
        ways = edges[here]
        # Where two regions touch at a corner, turn right, so that each keeps its own border.
        right = (-came[1], came[0])
        there = next((way for way in ways if (way[0] - here[0], way[1] - here[1]) == right), ways[0])
        ways.remove(there)
        if not ways:
            del edges[here]
        step = (there[0] - here[0], there[1] - here[1])
        if step != came:
            corners.append(here)
        here, came = there, step
        if here == start:
            first = (corners[1][0] - corners[0][0], corners[1][1] - corners[0][1]) if len(corners) > 1 else (0, 0)
            straight = first[0] * step[1] == first[1] * step[0]
            return corners[1:] if straight else corners


def _area(corners: list[tuple[int, int]]) -> float:
    x, y = np.array(corners).T
    return float(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2
