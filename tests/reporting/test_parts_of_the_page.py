"""What a report is made of: maps, charts, sheets of pictures; without a run and without a browser."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from csml.data.images import ArrayImages
from csml.reporting.charts import Chart, Series, as_figure, save_figures
from csml.reporting.gallery import evolution
from csml.reporting.html import as_script
from csml.reporting.layout import lay_out
from csml.reporting.pictures import thumbnail_sheets
from csml.reporting.scores import confusion_chart
from csml.reporting.svg import as_svg, nice_ticks, nonempty_charts


def test_a_chart_with_one_dot_is_not_shown() -> None:
    dot, line = (Chart("T", "lines", [Series("a", list(range(n)), [1.0] * n)]) for n in (1, 2))
    assert nonempty_charts([dot, line]) == [line]


def test_ticks_are_round_and_hold_all_values() -> None:
    for low, high in ((0, 1), (-3.2, 17), (0.001, 0.0042), (5, 5), (0, 100)):
        ticks = nice_ticks(low, high)
        assert ticks[0] <= low and ticks[-1] >= high and 2 <= len(ticks) <= 8


def test_ten_thousand_images_make_less_than_15_megabytes() -> None:
    """Noise is what compresses worst; photos stay well below it."""
    rng = np.random.default_rng(0)
    photos = rng.integers(0, 256, (200, 8, 8, 3), dtype=np.uint8).repeat(4, axis=1).repeat(4, axis=2)
    images = ArrayImages(photos, np.zeros(200, np.int64), ("a",), "blocks")
    sheets = thumbnail_sheets(images, np.arange(200).repeat(50), side=32)
    assert sum(map(len, sheets.urls)) + 10_000 * (80 + 12 * 6 + 2 * 7 + 4) < 15e6


@pytest.mark.parametrize("count", [2, 3, 5, 12])
def test_a_handful_of_images_has_a_map_too(count: int) -> None:
    features = torch.randn(count, 6, generator=torch.Generator().manual_seed(0))
    for made in (lay_out(features), lay_out(torch.ones(count, 6))):
        assert made.points.shape == (count, 2)
        assert np.isfinite(made.points).all()
        assert made.neighbors.shape == (count, min(12, count - 1))
    assert ("t-SNE by" in lay_out(features).settings) == (count >= 8)


@pytest.mark.parametrize("count", [8, 12, 30, 60, 120])
def test_unlike_images_are_spread_over_the_map(count: int) -> None:
    """t-SNE of so few was one point before its scale was restored between its phases."""
    for seed in range(3):
        made = lay_out(torch.randn(count, 64, generator=torch.Generator().manual_seed(seed)) + 1)
        assert (made.points.max(axis=0) > 0.999).all() and (made.points.std(axis=0) > 0.1).all()


def test_odd_names_can_be_drawn(tmp_path: Path) -> None:
    names = ["a$_$b", "_misc", "caf\udce9", "<b>", "бег"]
    bars = Chart("Of бег", "bars", [Series(name, names, [1.0] * 5) for name in names])
    matrix = Chart("Of сон", "matrix", [Series(name, [], [1.0] * 5) for name in names], labels=names)
    assert len({path.name for path in save_figures([bars, matrix, bars], tmp_path)}) == 6
    assert "<b>" not in as_svg(matrix) + as_svg(bars)


def test_of_a_thousand_classes_the_most_confused_are_shown() -> None:
    counts = np.eye(1000, dtype=int) * 50
    counts[7, 9] = counts[900, 3] = 20
    chart = confusion_chart("T", counts.tolist(), [f"class {i}" for i in range(1000)])
    assert len(chart.labels) == 30 and {"class 3", "class 7", "class 9", "class 900"} <= set(chart.labels)


def test_json_in_a_page_cannot_end_its_script() -> None:
    text = "</script><script>alert(1)</script>&\u2028"
    script = str(as_script({"name": text}))
    assert "<" not in script and "&" not in script and "\u2028" not in script
    assert json.loads(script) == {"name": text}


@pytest.mark.parametrize("kind", ["lines", "bars", "points", "matrix"])
def test_a_chart_is_drawn_twice_from_the_same_numbers(kind: str) -> None:
    series = [Series("one", [1, 2, 3], [1.0, 2.0, 3.0]), Series("two", [1, 2, 3], [3.0, 1.0, 2.0])]
    chart = Chart("T", kind, series, x="x", y="y", labels=["a", "b", "c"])  # type: ignore[arg-type]
    drawn, axes = as_svg(chart), as_figure(chart).axes[0]
    if kind == "matrix":
        assert axes.images[0].get_array().tolist() == [[1, 2, 3], [3, 1, 2]]
        assert "<title>two, predicted as a: 3</title>" in drawn
    elif kind == "bars":
        assert [patch.get_height() for patch in axes.patches] == [1, 2, 3, 3, 1, 2]
        assert "<title>two, 1: 3 y</title>" in drawn
    else:
        assert [line.get_ydata().tolist() for line in axes.lines] == [[1, 2, 3], [3, 1, 2]]
        assert "<title>two, x 1: 3 y</title>" in drawn
    assert chart.in_words().startswith("T")


def test_of_a_thinned_omega_only_what_was_kept_is_shown() -> None:
    pixels = np.zeros((6, 8, 8, 3), np.uint8)
    images = ArrayImages(pixels, np.array([0, 0, 0, 1, 1, 1]), ("a", "b"), "plain")
    early = np.array([[0, 0], [1, 1], [2, 2], [4, 5], [5, 3], [3, 4]])  # where none was kept stands the image itself
    late = np.array([[0, 0], [2, 2], [1, 3], [4, 4], [3, 3], [5, 5]])
    shown = [
        (row["anchor"].name, [(epoch, [tile.name for tile in tiles]) for epoch, tiles in row["searches"]])
        for row in evolution(images, [(1, early), (2, late)])
    ]
    names = [f"{images.name(id)} ({'aaabbb'[id]})" for id in range(6)]
    assert shown == [
        (names[1], [(1, []), (2, [names[2]])]),  # the first of its class that has a neighbour in the end
        (names[3], [(1, [names[4], names[5]]), (2, [names[4]])]),
    ]
