"""The sheet shows who is whose neighbour, and whether rightly."""

import numpy as np

from csml.data import ArrayImages
from csml.sheets.contact_sheet import neighbor_sheet


def test_anchor_first_then_neighbors_framed_by_their_label() -> None:
    pixels = np.zeros((3, 8, 8, 3), np.uint8)
    for i, value in enumerate((50, 100, 150)):
        pixels[i] = value
    images = ArrayImages(pixels, np.array([0, 0, 1]), ("x", "y"), "t")
    sheet = neighbor_sheet(images, np.array([[1, 2], [0, 2], [0, 1]]), np.array([0]), columns=2, tile=16)
    colours = {colour for _, colour in sheet.getcolors(10_000) or []}
    assert {(50, 50, 50), (100, 100, 100), (150, 150, 150)} <= colours
    assert len(colours) == 7  # three pictures, white, grey frame, green frame, red frame
    shown = [sheet.getpixel((x, 14)) for x in range(sheet.width)]
    order = [c[0] for c in shown if isinstance(c, tuple) and c in {(50,) * 3, (100,) * 3, (150,) * 3}]
    assert order == sorted(order)  # the anchor, then its neighbours in their order
