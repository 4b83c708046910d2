"""The plot of an ablation: one row each, lines over a setting or the stages, cost, Ω; every seed is a dot."""

import statistics
from typing import Any

from csml.ablations.outcomes import Outcome, measures, summarize
from csml.ablations.plans import Ablation
from csml.extras import extra

with extra("report", "the plot of an ablation"):
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

_COLORS = ("#3b6ea5", "#c8553d", "#588157", "#8e6c8a", "#b08900", "#4d4d4d", "#1b998b", "#d17b88")
_NOT_SHOWN = ("minutes", "purity of Ω", "turnover of Ω")


def draw(ablation: Ablation, outcomes: list[Outcome]) -> Figure:
    """One row per variation, or accuracy over minutes, stages or the values of a setting; every seed is a dot."""
    table = summarize(outcomes)
    shares = [key for key in measures(table) if key not in _NOT_SHOWN]
    last = [key for key in shares if key.startswith("linear")][-1:]
    few = [key for key in shares if key.endswith("labels a class")]
    shown = list(dict.fromkeys([*shares[:1], *last, *few]))
    if ablation.plot == "stages":
        shown = ["linear"]
    elif ablation.plot == "labels":
        shown = list(dict.fromkeys(key.split(", ")[-1] for key in shares if key.endswith(" %")))
    elif ablation.plot == "omega":
        shown = ["purity", "turnover", *shares[:1]]
    width, height = 4.6 * max(1, len(shown)), 3.4
    if ablation.plot in ("dots", "labels"):
        height = 1.2 + 0.45 * max([len(table), *(len(_with_labels(outcomes, key)) for key in shown)])
    figure = Figure(figsize=(max(6.0, width), max(2.6, height)), layout="constrained")
    for place, key in enumerate(shown):
        axes = figure.add_subplot(
            1, len(shown), place + 1, sharey=figure.axes[0] if figure.axes and ablation.plot != "omega" else None
        )
        if ablation.plot == "dots":
            _dots(axes, _by_variation(outcomes, key), f"{key}, %")
        elif ablation.plot == "labels":
            _dots(axes, _with_labels(outcomes, key), f"top-1 with {key} of the labels, %")
        elif ablation.plot == "cost":
            _cost(axes, outcomes, key)
        elif ablation.plot == "omega" and key in ("purity", "turnover"):
            _over_training(axes, outcomes, key)
        elif ablation.plot == "omega":
            _by_purity(axes, outcomes, key)
        elif ablation.plot == "stages":
            _lines(axes, _by_stage(outcomes), "stage", "linear top-1, %")
        else:
            _lines(axes, _by_setting(outcomes, ablation.plot, key), ablation.plot, f"{key}, %")
        if ablation.plot in ("dots", "labels"):
            axes.tick_params(labelleft=place == 0)  # the rows are the same as in the first panel
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(ablation.title, fontsize=11)
    return figure


Points = dict[str, dict[Any, list[float]]]
"""Line → x → a percentage per seed."""


def _dots(axes: Axes, rows: dict[str, list[float]], label: str) -> None:
    """A row for each name, a dot for each seed, a line for their mean."""
    for place, values in enumerate(rows.values()):
        mean = statistics.mean(values)
        axes.plot([mean], [place], "|", color=_COLORS[0], markersize=16, markeredgewidth=2)
        axes.plot(values, [place] * len(values), "o", color=_COLORS[0], markersize=5, alpha=0.6)
        axes.text(max(values), place, f"  {mean:.1f}", va="center", fontsize=9)
    axes.set_yticks(range(len(rows)), list(rows), fontsize=9)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(axis="y", color="0.92")
    axes.set_axisbelow(True)
    axes.margins(x=0.15)
    axes.set_xlabel(label)


def _by_variation(outcomes: list[Outcome], key: str) -> dict[str, list[float]]:
    rows: dict[str, list[float]] = {}
    for o in outcomes:
        if key in o.measured:
            rows.setdefault(o.variation.name, []).append(100 * o.measured[key])
    return rows


def _with_labels(outcomes: list[Outcome], share: str) -> dict[str, list[float]]:
    """Results with one share of the labels: `CsMl, fine-tuned` and so on."""
    rows: dict[str, list[float]] = {}
    for o in outcomes:
        for key, value in o.measured.items():
            if key.endswith(f", {share}"):
                how = key.removesuffix(f", {share}")
                name = how if how == o.variation.name else f"{o.variation.name}, {how}"
                rows.setdefault(name, []).append(100 * value)
    return rows


def _cost(axes: Axes, outcomes: list[Outcome], key: str) -> None:
    timed = [o for o in outcomes if "minutes" in o.measured and key in o.measured]
    names = list(dict.fromkeys(o.variation.name for o in timed))
    for place, name in enumerate(names):
        points = [(o.measured["minutes"], 100 * o.measured[key]) for o in timed if o.variation.name == name]
        axes.plot(*zip(*points, strict=True), "o", color=_COLORS[place % len(_COLORS)], label=name, markersize=6)
    axes.set_xlabel("minutes of training")
    axes.set_ylabel(f"{key}, %")
    axes.set_xlim(left=0)
    axes.legend(fontsize=8, frameon=False)


def _over_training(axes: Axes, outcomes: list[Outcome], key: str) -> None:
    """A line per run: Ω at every search."""
    names = list(dict.fromkeys(o.variation.name for o in outcomes))
    for o in outcomes:
        points = [(row["epoch"], 100 * row[key]) for row in o.history if key in row]
        if points:
            axes.plot(*zip(*points, strict=True), ".-", color=_COLORS[names.index(o.variation.name) % len(_COLORS)])
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set_ylabel(f"{key} of Ω, %")


def _by_purity(axes: Axes, outcomes: list[Outcome], key: str) -> None:
    """Accuracy over the purity of the last Ω; runs without neighbours are horizontal lines."""
    names = list(dict.fromkeys(o.variation.name for o in outcomes if key in o.measured))
    for place, name in enumerate(names):
        color = _COLORS[place % len(_COLORS)]
        runs = [o.measured for o in outcomes if o.variation.name == name and key in o.measured]
        pure = [(100 * run["purity of Ω"], 100 * run[key]) for run in runs if "purity of Ω" in run]
        if pure:
            axes.plot(*zip(*pure, strict=True), "o", color=color, label=name, markersize=6)
        else:
            axes.axhline(100 * statistics.mean(run[key] for run in runs), color=color, label=name, linewidth=1)
    axes.set_xlabel("purity of the last Ω, %")
    axes.set_ylabel(f"{key}, %")
    axes.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))


def _lines(axes: Axes, points: Points, x_label: str, y_label: str) -> None:
    ticks = list(dict.fromkeys(x for line in points.values() for x in line))
    for place, (name, line) in enumerate(points.items()):
        color = _COLORS[place % len(_COLORS)]
        places = [ticks.index(x) for x in line]
        axes.plot(places, [statistics.mean(values) for values in line.values()], "-", color=color, label=name)
        for x, values in zip(places, line.values(), strict=True):
            axes.plot([x] * len(values), values, "o", color=color, markersize=4)
    axes.set_xticks(range(len(ticks)), [str(tick) for tick in ticks])
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.legend(fontsize=8, frameon=False)


def _by_stage(outcomes: list[Outcome]) -> Points:
    points: Points = {}
    for o in outcomes:
        for key, value in o.measured.items():
            if key.startswith("linear"):
                points.setdefault(o.variation.name, {}).setdefault(key.split()[-1], []).append(100 * value)
    return points


def _by_setting(outcomes: list[Outcome], setting: str, key: str) -> Points:
    points: Points = {}
    for o in outcomes:
        others = {name: value for name, value in o.variation.facts.items() if name != setting}
        line = ", ".join(f"{name} {value}" for name, value in others.items())
        if setting in o.variation.facts and key in o.measured:
            x = str(o.variation.facts[setting])
            points.setdefault(line, {}).setdefault(x, []).append(100 * o.measured[key])
    return points
