"""Scores of runs: a summary table, and charts of scores and of training."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from csml.reporting.charts import Chart, Series
from csml.reporting.runs import FinishedRun

MOST_CLASSES = 30
"""Largest number of classes in a chart."""
_TITLES = {"supervised": "supervised", "finetune": "few labels", "mine": "few labels, mined"}


def scores_of(run: FinishedRun) -> dict[str, float]:
    """The results of a run: name of a task → percent."""
    found: dict[str, float] = {}
    results = run.results
    for k, share in results.get("knn", {}).get("accuracy", {}).items():
        found[f"{k}-NN"] = 100 * share
    for stage, scores in sorted(results.get("linear", {}).get("stages", {}).items()):
        found[f"linear, stage {stage}"] = 100 * scores["top1"]
    found |= {task: 100 * result["top1"] for task, result in classified(run).items()}
    for what in ("box", "mask"):
        scores = results.get("detect", {}).get(what)
        if scores:
            format = results["detect"]["format"]
            found |= {f"{format} {what} {name}": scores[name] for name in ("AP50", "AP") if scores[name] is not None}
    return found


def classified(run: FinishedRun) -> dict[str, dict[str, Any]]:
    """Name of a task → result of a classifier on test images."""
    found = {}
    for kind, title in _TITLES.items():
        result = run.results.get(kind, {})
        if "top1" in result:
            found[f"{title} ({result['labels']:,})" if kind == "finetune" else title] = result
    return found


def summary(runs: list[FinishedRun]) -> tuple[list[str], list[dict[str, Any]]]:
    """Names of tasks, and a row per backbone with its own scores and those of the runs that started from it."""
    rows: dict[Path, dict[str, Any]] = {}
    tasks: list[str] = []
    roots = {run.root for run in runs}
    for run in runs:
        origin, seen = run, {run.root}
        while (start := origin.started_from()) in roots and start not in seen:
            origin = next(other for other in runs if other.root == start)
            seen.add(origin.root)
        for task, value in scores_of(run).items():
            own = task.endswith("-NN") or task.startswith("linear")  # a measure of this run's network
            of = run if own else origin
            row = rows.setdefault(of.root, {"name": of.name, "minutes": _minutes(of), "scores": {}})
            if task in row["scores"]:
                task = f"{task}, {run.name}"
            tasks += [task] if task not in tasks else []
            row["scores"][task] = value
        rows.setdefault(origin.root, {"name": origin.name, "minutes": _minutes(origin), "scores": {}})
    return tasks, list(rows.values())


def by_stage(runs: list[FinishedRun]) -> Chart | None:
    """Linear accuracy by stage, for runs with more than one stage."""
    series = []
    for run in runs:
        stages = sorted(run.results.get("linear", {}).get("stages", {}).items())
        if len(stages) > 1:
            series.append(Series(run.name, [int(s) for s, _ in stages], [100 * scores["top1"] for _, scores in stages]))
    return Chart("Linear accuracy by stage", "lines", series, x="stage", y="top-1, %") if series else None


_CURVES: tuple[tuple[str, str, str], ...] = (
    ("20-NN on test images", r"knn20", "%"),
    ("Top-1 on test images", r"top1", "%"),
    ("AP on test images", r"AP|AP50", "AP, %"),
    ("Purity of the neighbour set Ω", r"omega/purity", "%"),
    ("Turnover of the neighbour set Ω", r"omega/turnover", "%"),
    ("Contrastive accuracy", r"accuracy/stage\d", "%"),
    ("Accuracy on training images", r"accuracy", "%"),
    ("Spread of the embeddings", r"spread/stage\d", ""),
    ("Learning rate", r"lr", ""),
    ("Images per second", r"images_per_second", ""),
)


def training_curves(runs: list[FinishedRun]) -> list[Chart]:
    """A chart of the losses per run, and one chart per other metric with all runs."""
    charts = [chart for run in runs if (chart := _losses(run)) is not None]
    in_epochs = [run for run in runs if run.command != "detect"]
    detectors = [run for run in runs if run.command == "detect"]
    charts += _curves(in_epochs, "", "epoch") + _curves(detectors, ", detection", "iteration")
    return charts


def _curves(runs: list[FinishedRun], ending: str, x: str) -> list[Chart]:
    charts = []
    for title, pattern, unit in _CURVES:
        series = []
        for run in runs:
            for key in _keys(run, pattern):
                values = [record.get(key) for record in run.metrics]
                scaled = [100 * v if unit == "%" and v is not None else v for v in values]
                if any(value is not None for value in scaled):
                    several = "/stage" in key or key.startswith("AP")
                    name = f"{run.name} {key.split('/')[-1]}" if several else run.name
                    series.append(Series(name, _times(run), scaled))
        if series:
            charts.append(Chart(title + ending, "lines", series, x=x, y=unit))
    return charts


def classifier_charts(runs: list[FinishedRun]) -> list[Chart]:
    """Accuracy by class and confusion matrix from the results of classifiers."""
    charts = []
    for run in runs:
        for kind in _TITLES:
            result = run.results.get(kind, {})
            shares = {name: value for name, value in result.get("per_class", {}).items() if value is not None}
            if not shares:
                continue
            order = sorted(shares, key=lambda name: shares[name])[:MOST_CLASSES]
            series = [Series(run.name, order, [100 * shares[name] for name in order])]
            of = f"{run.name} (its classifier)"
            charts.append(Chart(f"Accuracy by class of {of}, worst first", "bars", series, y="%"))
            if "confusion" in result:
                charts.append(confusion_chart(f"Confusions of {of}", result["confusion"], result["classes"]))
    return charts


def confusion_chart(
    title: str, counts: list[list[int]], classes: Sequence[str], x: str = "predicted", y: str = "actual"
) -> Chart:
    """Rows are true classes, columns are predicted ones. If there are many classes, the most confused are shown."""
    table = np.array(counts)
    wrong = table.sum(1) + table.sum(0) - 2 * np.diag(table)
    kept = np.sort(np.argsort(-wrong, kind="stable")[:MOST_CLASSES])
    names = [str(classes[place]) for place in kept]
    rows = [Series(name, [], table[place, kept].tolist()) for name, place in zip(names, kept, strict=True)]
    return Chart(title, "matrix", rows, x=x, y=y, labels=names)


def _losses(run: FinishedRun) -> Chart | None:
    keys = _keys(run, r"loss/.+") or _keys(run, "loss")
    series = [Series(key.removeprefix("loss/"), _times(run), [r.get(key) for r in run.metrics]) for key in keys]
    if _keys(run, "chance"):
        series.append(Series("chance", _times(run), [record.get("chance") for record in run.metrics]))
    x = "iteration" if run.command == "detect" else "epoch"
    return Chart(f"Loss of {run.name}", "lines", series, x=x, y="loss") if series else None


def _keys(run: FinishedRun, pattern: str) -> list[str]:
    found = dict.fromkeys(key for record in run.metrics for key in record if re.fullmatch(pattern, key))
    return list(found)


def _times(run: FinishedRun) -> list[int]:
    return [record.get("iteration", record["epoch"]) for record in run.metrics]


def _minutes(run: FinishedRun) -> float | None:
    if not run.metrics:
        return None
    return sum(record.get("seconds", 0.0) + record.get("search_seconds", 0.0) for record in run.metrics) / 60
