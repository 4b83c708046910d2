"""The outcome of an ablation: a table of means and spreads, its numbers as CSV and JSON, and a plot."""

import csv
import json
import os
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from csml.config.ablations import Ablation, Variation
from csml.data.cache import atomic_write
from csml.training.metrics import read_metrics
from csml.training.run_directory import commit

FEW_LABELS = "few-labels"
"""Folder inside a run, with one for each share of the labels."""
_COLORS = ("#3b6ea5", "#c8553d", "#588157", "#8e6c8a", "#b08900", "#4d4d4d")


@dataclass(frozen=True)
class Outcome:
    """One run of an ablation."""

    variation: Variation
    seed: int
    measured: dict[str, float]
    """name of a measure → accuracies as shares, minutes"""


def measure(run: Path) -> dict[str, float]:
    """What the files of a judged run say: kNN, linear by stage, few labels, purity of Ω, minutes of training."""
    found: dict[str, float] = {}
    if (run / "knn.json").exists():
        found |= {f"{k}-NN": share for k, share in json.loads((run / "knn.json").read_text())["accuracy"].items()}
    if (run / "linear.json").exists():
        stages = json.loads((run / "linear.json").read_text())["stages"]
        found |= {f"linear, stage {stage}": scores["top1"] for stage, scores in sorted(stages.items())}
    found |= _few_labels(run)
    records = read_metrics(run / "metrics.jsonl") if (run / "metrics.jsonl").exists() else []
    purities = [record["omega/purity"] for record in records if record.get("omega/purity") is not None]
    if purities:
        found["purity of Ω"] = purities[-1]
    if records:
        found["minutes"] = sum(record["seconds"] + record.get("search_seconds", 0.0) for record in records) / 60
    return found


def _few_labels(run: Path) -> dict[str, float]:
    """`fine-tuned, 1 %` and the like: top-1."""
    names = {"supervised": "labels alone", "finetune": "fine-tuned", "mine": "mined"}
    found = {}
    for place in sorted(run.glob(f"{FEW_LABELS}/*"), key=lambda place: float(place.name)):
        for command, name in names.items():
            if (place / command / f"{command}.json").exists():
                result = json.loads((place / command / f"{command}.json").read_text())
                found[f"{name}, {100 * float(place.name):g} %"] = result["top1"]
    return found


Summary = dict[str, dict[str, tuple[float, float | None, int]]]
"""Per variation and measure: mean, sample deviation over seeds (None for one seed), number of seeds."""


def summarize(outcomes: list[Outcome]) -> Summary:
    table: Summary = {}
    for name in dict.fromkeys(outcome.variation.name for outcome in outcomes):
        rows = [outcome.measured for outcome in outcomes if outcome.variation.name == name]
        table[name] = {}
        for key in dict.fromkeys(key for row in rows for key in row):
            values = [row[key] for row in rows if key in row]
            spread = statistics.stdev(values) if len(values) > 1 else None
            table[name][key] = (statistics.mean(values), spread, len(values))
    return table


def markdown(outcomes: list[Outcome], paper: dict[str, float] | None = None) -> str:
    """The table: mean ± deviation over seeds, shares in percent; beside them the paper's figure."""
    return _markdown(summarize(outcomes), paper)


def table_of(results: dict[str, Any]) -> str:
    """The same from results.json."""
    table = {
        name: {key: (cell["mean"], cell["deviation"], cell["seeds"]) for key, cell in row.items()}
        for name, row in results["summary"].items()
    }
    return _markdown(table, results["paper"])


def _markdown(table: Summary, paper: dict[str, float] | None) -> str:
    keys = [*_measures(table), "seeds", *(["paper"] if paper else [])]
    lines = ["| | " + " | ".join(keys) + " |", "|---|" + "---|" * len(keys)]
    for name, row in table.items():
        cells = {key: _cell(key, row.get(key)) for key in keys}
        cells["seeds"] = str(max(n for _, _, n in row.values()))
        if paper:
            cells["paper"] = f"{paper[name]:.1f}" if name in paper else ""
        lines.append(f"| {name} | " + " | ".join(cells[key] for key in keys) + " |")
    return "\n".join(lines) + "\n"


def write_outcome(
    folder: Path, ablation: Ablation, outcomes: list[Outcome], failed: dict[str, str], command: str
) -> None:
    """table.md, runs.csv, results.json, plot.png and plot.svg, each replaced as a whole."""
    table = summarize(outcomes)
    keys = _measures(table)
    text = f"# {ablation.title}\n\n{markdown(outcomes, ablation.paper)}"
    text += "".join(f"\n{name}: {problem}\n" for name, problem in failed.items())
    with atomic_write(folder / "table.md") as path:
        path.write_text(text)
    with atomic_write(folder / "runs.csv") as path, path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["variation", "seed", *keys])
        for o in outcomes:
            writer.writerow([o.variation.name, o.seed, *(o.measured.get(key, "") for key in keys)])
    results = {
        "title": ablation.title,
        "seeds": list(ablation.seeds),
        "paper": ablation.paper,
        "command": command,
        "commit": commit(),
        "machine": f"{os.cpu_count()} CPU cores" if not torch.cuda.is_available() else torch.cuda.get_device_name(),
        "commands": {v.name: ["csml", "pretrain", *v.arguments] for v in ablation.variations},
        "times": {v.name: v.times for v in ablation.variations if v.times},
        "runs": [{"variation": o.variation.name, "seed": o.seed, **o.measured} for o in outcomes],
        "summary": {
            name: {key: dict(zip(("mean", "deviation", "seeds"), cell, strict=True)) for key, cell in row.items()}
            for name, row in table.items()
        },
        "failed": failed,
    }
    with atomic_write(folder / "results.json") as path:
        path.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    figure = draw(ablation, outcomes)
    for suffix in ("png", "svg"):
        with atomic_write(folder / f"plot.{suffix}") as path:
            figure.savefig(path, format=suffix, dpi=150)


def draw(ablation: Ablation, outcomes: list[Outcome]) -> Figure:
    """Bars, or accuracy against minutes, stages or the values of a setting; every seed is a dot."""
    table = summarize(outcomes)
    shares = [key for key in _measures(table) if key not in ("minutes", "purity of Ω")]
    last = [key for key in shares if key.startswith("linear")][-1:]
    shown = shares[:1] + [key for key in last if key not in shares[:1]]
    if ablation.plot == "stages":
        shown = ["linear"]
    width, height = 4.6 * max(1, len(shown)), 3.4 if ablation.plot != "bars" else 1.2 + 0.45 * len(table)
    figure = Figure(figsize=(max(6.0, width), max(2.6, height)), layout="constrained")
    for place, key in enumerate(shown):
        axes = figure.add_subplot(1, len(shown), place + 1, sharey=figure.axes[0] if figure.axes else None)
        if ablation.plot == "bars":
            _bars(axes, outcomes, key)
        elif ablation.plot == "cost":
            _cost(axes, outcomes, key)
        elif ablation.plot == "stages":
            _lines(axes, _by_stage(outcomes), "stage", "linear top-1, %")
        else:
            _lines(axes, _by_setting(outcomes, ablation.plot, key), ablation.plot, f"{key}, %")
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(ablation.title, fontsize=11)
    return figure


Points = dict[str, dict[Any, list[float]]]
"""Line → x → a percentage per seed."""


def _bars(axes: Axes, outcomes: list[Outcome], key: str) -> None:
    names = list(dict.fromkeys(o.variation.name for o in outcomes if key in o.measured))
    for place, name in enumerate(names):
        values = [100 * o.measured[key] for o in outcomes if o.variation.name == name and key in o.measured]
        mean = statistics.mean(values)
        axes.barh(place, mean, color=_COLORS[0], alpha=0.35, height=0.65)
        axes.plot(values, [place] * len(values), "o", color=_COLORS[0], markersize=4)
        axes.text(max(values), place, f"  {mean:.1f}", va="center", fontsize=9)
    axes.set_yticks(range(len(names)), names, fontsize=9)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.margins(x=0.15)
    axes.set_xlabel(f"{key}, %")


def _cost(axes: Axes, outcomes: list[Outcome], key: str) -> None:
    names = list(dict.fromkeys(o.variation.name for o in outcomes))
    for place, name in enumerate(names):
        points = [(o.measured["minutes"], 100 * o.measured[key]) for o in outcomes if o.variation.name == name]
        axes.plot(*zip(*points, strict=True), "o", color=_COLORS[place % len(_COLORS)], label=name, markersize=6)
    axes.set_xlabel("minutes of training")
    axes.set_ylabel(f"{key}, %")
    axes.set_xlim(left=0)
    axes.legend(fontsize=8, frameon=False)


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


def _measures(table: dict[str, dict[str, Any]]) -> list[str]:
    """All measures of the table, minutes last."""
    keys = list(dict.fromkeys(key for row in table.values() for key in row))
    return sorted(keys, key=lambda key: (key == "minutes", key == "purity of Ω"))


def _cell(key: str, cell: tuple[float, float | None, int] | None) -> str:
    if cell is None:
        return ""
    factor = 1 if key == "minutes" else 100
    mean, spread, _ = cell
    return f"{factor * mean:.1f}" + ("" if spread is None else f" ± {factor * spread:.1f}")
