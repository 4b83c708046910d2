"""Names on pictures of objects: beside what they name, and in a crowd only where there is room."""

import numpy as np
from PIL import Image

from csml.sheets.objects import class_colour, covers_too_much, draw_objects, place_name


def filled(picture: Image.Image, label: int, classes: int) -> int:
    """Pixels in the colour of a class: frames and the ground of names."""
    return int((np.asarray(picture) == class_colour(label, classes)).all(axis=2).sum())


def drawn(boxes: np.ndarray, labels: np.ndarray, names: list[str]) -> Image.Image:
    return draw_objects(Image.new("RGB", (200, 200)), boxes, labels, names, classes=2)


def test_a_name_stands_outside_of_its_box_where_there_is_room() -> None:
    box = (50.0, 50.0, 90.0, 90.0)
    assert place_name((30, 12), box, [box], [], (200, 200)) == (50, 38, 80, 50)
    above = (40.0, 30.0, 100.0, 49.0)  # another object: below is free
    assert place_name((30, 12), box, [box, above], [], (200, 200)) == (50, 90, 80, 102)


def test_a_name_hides_an_object_that_it_covers_by_a_third() -> None:
    place = (0.0, 0.0, 30.0, 10.0)
    assert not covers_too_much(place, [(0, 0, 30, 50)], [])
    assert covers_too_much(place, [(0, 0, 30, 30)], [])
    assert covers_too_much(place, [], [(29.0, 9.0, 40.0, 20.0)])


def test_in_a_crowd_objects_stay_visible_and_each_class_is_named() -> None:
    corners = np.array([(x, y) for y in range(10, 190, 14) for x in range(10, 190, 14)], np.float32)
    boxes = np.concatenate([corners, corners + 10], axis=1)  # (169, 4) with gaps narrower than a name
    labels = np.zeros(len(boxes), np.int64)
    labels[-1] = 1
    crowd = drawn(boxes, labels, ["nucleus"] * len(boxes))
    frames = drawn(boxes, labels, [""] * len(boxes))
    covered = (np.asarray(crowd) != np.asarray(frames)).any(axis=2)
    assert 0 < covered.mean() < 0.15
    lonely = drawn(boxes[-1:], labels[-1:], [""])
    assert filled(crowd, 1, 2) > 3 * filled(lonely, 1, 2)  # the only one of its class has its name, over all others
