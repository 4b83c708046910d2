"""Groups of runs that differ only in their seed, reported together with mean and standard deviation."""

import statistics
from itertools import takewhile
from typing import Any

from csml.reporting.charts import Chart, Series
from csml.reporting.runs import FinishedRun
from csml.reporting.scores import scores_of, summary

_OWN = ("seed", "out")
"""Settings in which runs of one group may differ."""
_BETWEEN = "-_./ "
"""Separators between a name and a seed."""


def group_by_seed(runs: list[FinishedRun]) -> list[list[FinishedRun]]:
    """Group runs whose settings are equal except for the seed."""
    found: dict[str, list[FinishedRun]] = {}
    for run in runs:
        key = repr(sorted((k, str(v)) for k, v in run.settings.items() if k not in _OWN))
        found.setdefault(f"{run.command} {key}", []).append(run)
    return list(found.values())


def group_name(members: list[FinishedRun]) -> str:
    """The name of a single run; for several seeds the folder that contains them, or the common part of their names."""
    if len(members) == 1:
        return members[0].name
    parents = {run.root.parent.name for run in members}
    if len(parents) == 1 and members[0].root.name.startswith("seed"):
        return parents.pop()
    alike = takewhile(lambda letters: len(set(letters)) == 1, zip(*(run.name for run in members), strict=False))
    shared = "".join(letters[0] for letters in alike).rstrip(_BETWEEN).removesuffix("seed").rstrip(_BETWEEN)
    return shared or members[0].name


def scores_by_group(runs: list[FinishedRun], task: str) -> list[tuple[str, list[float]]]:
    """Name of each group and the score of each seed in percent."""
    return [
        (group_name(members), [scores_of(run)[task] for run in members if task in scores_of(run)])
        for members in group_by_seed(runs)
    ]


def mean_rows(runs: list[FinishedRun], tasks: list[str]) -> list[dict[str, Any]]:
    """A row of the table for each group with several seeds: mean ± standard deviation of each task."""
    rows = []
    for members in group_by_seed(runs):
        if len(members) < 2:
            continue
        scores = {}
        for task in tasks:
            values = [scores_of(run)[task] for run in members if task in scores_of(run)]
            if len(values) > 1:
                scores[task] = f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"
        if scores:
            rows.append({"name": f"{group_name(members)}, mean of {len(members)} runs", "scores": scores})
    return rows


def overview(runs: list[FinishedRun]) -> Chart | None:
    """All tasks in one chart, like the first figure of the paper; means over seeds."""
    tasks, rows = summary(runs)
    if sum(len(row["scores"]) for row in rows) < 2:  # one bar shows nothing that the table does not say
        return None
    if not any(len(members) > 1 for members in group_by_seed(runs)):
        named = [(row["name"], [row["scores"].get(task) for task in tasks]) for row in rows if row["scores"]]
        return Chart("All tasks", "bars", [Series(name, tasks, values) for name, values in named], y="%")
    kept = [task for task in tasks if any(values for _, values in scores_by_group(runs, task))]  # not "…, RUN"
    rows_of_kinds = zip(*(scores_by_group(runs, task) for task in kept), strict=True)
    series = [
        Series(row[0][0], kept, [mean_of(values) for _, values in row])
        for row in rows_of_kinds
        if any(values for _, values in row)
    ]
    return Chart("All tasks, mean over seeds", "bars", series, y="%")


def mean_of(values: list[float]) -> float | None:
    """The mean; None without values."""
    return statistics.mean(values) if values else None
