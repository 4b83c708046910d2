"""Charts as inline SVG: readable without JavaScript, in print, and in both themes.

Colours of text and lines are those of the page (`currentColor` and its variables); a `<title>` on every mark is its
tooltip.
"""

import math
from collections.abc import Callable, Sequence
from html import escape

import numpy as np

from csml.reporting.charts import COLORS, Chart

_WIDTH, _HEIGHT = 520, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 54, 12, 34, 44
_MARKS = ("circle", "square", "diamond", "triangle")
_LONGEST = 15
"""Largest number of letters of a name on an axis: as many as fit for wide letters, at 7.5 pixels each."""
_TURN = 55
"""Angle in degrees of the names below bars, if there are many."""

_Place = Callable[[float], float]
"""A value → its position on the axis."""


def as_svg(chart: Chart) -> str:
    """The chart as an SVG element; names in it are escaped."""
    body, height = _matrix(chart) if chart.kind == "matrix" else _axes(chart)
    return (
        f'<svg class="drawn" viewBox="0 0 {_WIDTH} {height:.0f}" role="img" aria-label="{escape(chart.in_words())}">'
        f"{body}</svg>"
    )


def _axes(chart: Chart) -> tuple[str, float]:
    values = [value for series in chart.series for value in series.y if value is not None]
    low, high = min([0.0, *values]) if chart.kind == "bars" else min(values), max(values)
    ticks = nice_ticks(low, high)
    low, high = min(low, ticks[0]), max(high, ticks[-1])
    legend = "".join(_legend(number, series.name) for number, series in enumerate(chart.series))
    rows = -(-len(chart.series) // 2) if len(chart.series) > 1 else 0
    bottom = _HEIGHT - _BOTTOM
    named = chart.kind == "bars"
    turned = named and len(chart.series[0].x) > 4
    extra = 80 if turned else 0

    def y_of(value: float) -> float:
        return bottom - (value - low) / max(high - low, 1e-12) * (bottom - _TOP)

    parts = [
        f'<line class="rule" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y_of(t):.1f}" y2="{y_of(t):.1f}"/>'
        f'<text x="{_LEFT - 6}" y="{y_of(t) + 4:.1f}" text-anchor="end">{t:g}</text>'
        for t in ticks
    ]
    parts.append(f'<text x="4" y="14" class="unit">{escape(chart.y)}</text>')
    parts += _bars(chart, y_of, turned) if named else _lines(chart, y_of)
    parts.append(
        f'<text x="{(_LEFT + _WIDTH) / 2:.0f}" y="{_HEIGHT + extra - 10}" text-anchor="middle">{escape(chart.x)}</text>'
    )
    top = _HEIGHT + extra + 6
    if rows:
        parts.append(f'<g transform="translate(0 {top})">{legend}</g>')
    return "".join(parts), top + 20 * rows


def _lines(chart: Chart, y_of: _Place) -> list[str]:
    xs = [float(x) for series in chart.series for x in series.x]
    first, last = min(xs), max(xs)

    def x_of(value: float) -> float:
        return _LEFT + 8 + (value - first) / max(last - first, 1e-12) * (_WIDTH - _LEFT - _RIGHT - 16)

    whole = [t for t in nice_ticks(first, last, 6) if t == int(t) and first <= t <= last]
    parts = [f'<text x="{x_of(t):.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{t:g}</text>' for t in whole]
    for number, series in enumerate(chart.series):
        known = [(x_of(float(x)), y_of(y), x, y) for x, y in zip(series.x, series.y, strict=True) if y is not None]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _, _ in known)
        dash = ("", "6 3", "2 3", "8 3 2 3")[number // len(COLORS) % 4]
        parts.append(f'<polyline points="{path}" fill="none" stroke="{_colour(number)}" stroke-dasharray="{dash}"/>')
        every = max(1, len(known) // 40)
        parts += [
            _mark(number, x, y, f"{series.name}, {chart.x} {at}: {value:.4g} {chart.y}")
            for x, y, at, value in known[::every]
        ]
    return parts


def _bars(chart: Chart, y_of: _Place, turned: bool) -> list[str]:
    names = chart.series[0].x
    step = (_WIDTH - _LEFT - _RIGHT) / max(1, len(names))
    width = 0.8 * step / len(chart.series)
    parts = []
    for place, name in enumerate(names):
        middle = _LEFT + (place + 0.5) * step
        for number, series in enumerate(chart.series):
            value = series.y[place]
            if value is None:
                continue
            left = middle + (number - len(chart.series) / 2) * width
            top, zero = y_of(value), y_of(0.0)
            tooltip = escape(f"{series.name}, {name}: {value:.4g} {chart.y}")
            parts.append(
                f'<rect x="{left:.1f}" y="{top:.1f}" width="{width * 0.92:.1f}" height="{max(zero - top, 0.5):.1f}" '
                f'fill="{_colour(number)}"><title>{tooltip}</title></rect>'
            )
            if width > 26:
                parts.append(
                    f'<text x="{left + width / 2:.1f}" y="{top - 3:.1f}" text-anchor="middle">{value:.0f}</text>'
                )
        at = _HEIGHT - _BOTTOM + 16
        where = (
            f'transform="rotate(-{_TURN} {middle:.1f} {at})" text-anchor="end"' if turned else 'text-anchor="middle"'
        )
        parts.append(f'<text x="{middle:.1f}" y="{at}" {where}>{escape(_short(str(name)))}</text>')
    return parts


def _matrix(chart: Chart) -> tuple[str, float]:
    margin = 130
    side = (_WIDTH - margin - _RIGHT) / len(chart.labels)
    most = max(1.0, *(value or 0.0 for series in chart.series for value in series.y))
    parts = []
    for row, series in enumerate(chart.series):
        y = margin + row * side
        parts.append(
            f'<text x="{margin - 6}" y="{y + side / 2 + 4:.1f}" text-anchor="end">{escape(_short(series.name))}</text>'
        )
        for column, value in enumerate(series.y):
            x, share = margin + column * side, (value or 0.0) / most
            tooltip = f"{series.name}, predicted as {chart.labels[column]}: {value:g}"
            parts.append(
                f'<rect class="cell" x="{x:.1f}" y="{y:.1f}" width="{side:.1f}" height="{side:.1f}" '
                f'fill-opacity="{share:.2f}"><title>{escape(tooltip)}</title></rect>'
            )
            if side > 18 and value:
                parts.append(
                    f'<text class="{"over" if share > 0.5 else ""}" x="{x + side / 2:.1f}" y="{y + side / 2 + 4:.1f}" '
                    f'text-anchor="middle">{value:g}</text>'
                )
    for column, name in enumerate(chart.labels):
        x = margin + (column + 0.5) * side + 4
        where = f'transform="rotate(-90 {x:.1f} {margin - 6})"'
        parts.append(f'<text x="{x:.1f}" y="{margin - 6}" {where}>{escape(_short(name))}</text>')
    for place, words in enumerate((f"{chart.y} ↓", f"{chart.x} →")):
        parts.append(f'<text x="4" y="{14 + 16 * place}" class="unit">{escape(words)}</text>')
    return "".join(parts), margin + side * len(chart.series) + 8


def _legend(number: int, name: str) -> str:
    x, y = _LEFT + (number % 2) * (_WIDTH - _LEFT) / 2, 10 + number // 2 * 20
    return f'{_mark(number, x, y, name)}<text x="{x + 10:.1f}" y="{y + 4}">{escape(_short(name, 32))}</text>'


def _mark(number: int, x: float, y: float, tooltip: str) -> str:
    """A mark whose shape, not only its colour, identifies the series."""
    title, fill = f"<title>{escape(tooltip)}</title>", f'fill="{_colour(number)}"'
    match _MARKS[number % len(_MARKS)]:
        case "circle":
            return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2" {fill}>{title}</circle>'
        case "square":
            return f'<rect x="{x - 3:.1f}" y="{y - 3:.1f}" width="6" height="6" {fill}>{title}</rect>'
        case "diamond":
            points = f"{x:.1f},{y - 4:.1f} {x + 4:.1f},{y:.1f} {x:.1f},{y + 4:.1f} {x - 4:.1f},{y:.1f}"
        case _:
            points = f"{x:.1f},{y - 4:.1f} {x + 4:.1f},{y + 3:.1f} {x - 4:.1f},{y + 3:.1f}"
    return f'<polygon points="{points}" {fill}>{title}</polygon>'


def dots(points: np.ndarray, groups: Sequence[int]) -> str:
    """Points `(N, 2)` from 0 to 1 as strokes of length 0, one path per group: a few bytes per point."""
    names = sorted(set(groups))
    paths = []
    for place, name in enumerate(names):
        rows = [row for row, group in enumerate(groups) if group == name]
        path = "".join(f"M{2 + 96 * x:.2f} {98 - 96 * y:.2f}h0" for x, y in points[rows].tolist())
        colour = COLORS[place] if len(names) <= len(COLORS) else f"hsl({place * 137 % 360} 60% 55%)"
        paths.append(f'<path d="{path}" stroke="{colour}"/>')
    return "".join(paths)


def nice_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers between low and high, and the ones just outside."""
    span = high - low or abs(high) or 1.0
    power = 10.0 ** math.floor(math.log10(span / most))
    step = next(factor * power for factor in (1, 2, 5, 10) if span / (factor * power) <= most)
    first, last = math.floor(low / step), max(math.ceil(high / step), math.floor(low / step) + 1)
    return [round(place * step, 10) for place in range(first, last + 1)]


def _colour(number: int) -> str:
    return COLORS[number % len(COLORS)]


def _short(name: str, longest: int = _LONGEST) -> str:
    """Shorten a long name in the middle, because names of classes often differ at the end."""
    end = longest // 2 - 1
    return name if len(name) <= longest else f"{name[: longest - 1 - end]}…{name[-end:]}"


def nonempty_charts(charts: Sequence[Chart]) -> list[Chart]:
    """Charts with content: a line of at least two points, bars with values, a matrix of at least two classes."""
    return [chart for chart in charts if _shows(chart)]


def _shows(chart: Chart) -> bool:
    if chart.kind == "lines":
        return any(sum(value is not None for value in series.y) > 1 for series in chart.series)
    return any(value is not None for series in chart.series for value in series.y)
