"""Charts as data: svg.py draws them on a page, matplotlib writes them as PNG and SVG files."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from csml.extras import extra
from csml.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLORS = ("#3b6ea5", "#c8553d", "#588157", "#8e6c8a", "#b08900", "#2a9d8f", "#d87ca4", "#7f7f7f", "#9c6b30", "#5f7cd6")


@dataclass(frozen=True)
class Series:
    """One line of a chart, or its bars or points of one colour."""

    name: str
    x: list[Any]
    y: list[float | None]


@dataclass(frozen=True)
class Chart:
    """A chart, independent of the library that draws it."""

    title: str
    kind: Literal["lines", "bars", "points", "matrix"]
    series: list[Series]
    x: str = ""
    y: str = ""
    labels: list[str] = field(default_factory=list)
    """for a matrix: names of the columns. Each series is a row, with its values in y."""

    def in_words(self) -> str:
        """The chart as a sentence, for screen readers."""
        if self.kind == "matrix":
            return f"{self.title}: {len(self.series)} by {len(self.labels)} counts"
        sentences = []
        for series in self.series[:8]:
            numbers = [value for value in series.y if value is not None]
            if self.kind == "points" or not numbers:
                sentences.append(f"{series.name}: {len(series.y)} points")
            elif self.kind == "bars":
                sentences.append(
                    f"{series.name}: " + ", ".join(f"{x} {_short(y)}" for x, y in zip(series.x, series.y, strict=True))
                )
            else:
                sentences.append(f"{series.name}: from {_short(numbers[0])} to {_short(numbers[-1])}")
        return f"{self.title}. " + "; ".join(sentences)


def as_figure(chart: Chart) -> "Figure":
    """The chart as a matplotlib figure."""
    with extra("report", "a figure"):
        from matplotlib.figure import Figure
    if chart.kind == "matrix":
        side = max(3.0, 0.32 * len(chart.labels))
        figure = Figure(figsize=(side + 1.5, side + 1), layout="constrained")
        axes = figure.add_subplot()
        axes.imshow(np.array([series.y for series in chart.series], dtype=float), cmap="Blues")
        axes.set_xticks(
            range(len(chart.labels)), [_plain(label) for label in chart.labels], rotation=60, ha="right", fontsize=8
        )
        axes.set_yticks(range(len(chart.series)), [_plain(series.name) for series in chart.series], fontsize=8)
    else:
        wide = len(chart.series[0].x) if chart.kind == "bars" and chart.series else 0
        figure = Figure(
            figsize=(min(40.0, max(6.0, 0.3 * wide * max(1, len(chart.series)))), 3.6), layout="constrained"
        )
        axes = figure.add_subplot()
        for number, series in enumerate(chart.series):
            color = COLORS[number % len(COLORS)]
            if chart.kind == "bars":
                width = 0.8 / len(chart.series)
                places = np.arange(len(series.x)) + (number - (len(chart.series) - 1) / 2) * width
                axes.bar(places, [value or 0.0 for value in series.y], width, label=_plain(series.name), color=color)
                rotation = 45 if len(series.x) > 5 else 0
                axes.set_xticks(
                    range(len(series.x)),
                    [_plain(x) for x in series.x],
                    rotation=rotation,
                    ha="right" if rotation else "center",
                )
            else:
                known = [(x, y) for x, y in zip(series.x, series.y, strict=True) if y is not None]
                style = {"linestyle": "none", "markersize": 2} if chart.kind == "points" else {"markersize": 3}
                axes.plot(
                    *zip(*known, strict=True), marker="o", label=_plain(series.name), color=color, **style
                ) if known else None
        if len(chart.series) > 1:
            axes.legend(fontsize=7, frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    axes.set(title=_plain(chart.title), xlabel=chart.x, ylabel=chart.y)
    return figure


def _plain(name: object) -> str:
    """Escape a name for matplotlib: $ starts mathematics, a leading _ hides a legend entry, lone surrogates fail."""
    text = str(name).encode("utf-8", "replace").decode("utf-8").replace("$", r"\$")
    return "\N{ZERO WIDTH SPACE}" + text if text.startswith("_") else text


def save_figures(charts: list[Chart], folder: Path) -> list[Path]:
    """Write every chart as PNG and SVG, named after its title; returns the files."""
    written = []
    for chart in charts:
        figure = as_figure(chart)
        name = re.sub(r"[\W_]+", "-", chart.title.lower()).strip("-")
        while folder / f"{name}.png" in written:
            name += "-2"
        for suffix in ("png", "svg"):
            with atomic_write(folder / f"{name}.{suffix}") as path:
                figure.savefig(path, format=suffix, dpi=150)
            written.append(folder / f"{name}.{suffix}")
    return written


def _short(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"
