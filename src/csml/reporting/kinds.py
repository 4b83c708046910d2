"""Runs of one kind: they differ only in their seed, and count together, with mean and spread."""

import statistics
from itertools import takewhile
from typing import Any

from csml.reporting.charts import Chart, Series
from csml.reporting.runs import FinishedRun
from csml.reporting.scores import scores_of, summary

_OWN = ("seed", "out")
"""Settings in which runs of one kind may differ."""
_BETWEEN = "-_./ "
"""What stands between a name and a seed."""


def kinds_of(runs: list[FinishedRun]) -> list[list[FinishedRun]]:
    """Runs of equal settings but for the seed, together."""
    found: dict[str, list[FinishedRun]] = {}
    for run in runs:
        key = repr(sorted((k, str(v)) for k, v in run.settings.items() if k not in _OWN))
        found.setdefault(f"{run.command} {key}", []).append(run)
    return list(found.values())


def kind_name(members: list[FinishedRun]) -> str:
    """The name of the run; of several seeds the folder that they are in, or what their names have in common."""
    if len(members) == 1:
        return members[0].name
    parents = {run.root.parent.name for run in members}
    if len(parents) == 1 and members[0].root.name.startswith("seed"):
        return parents.pop()
    alike = takewhile(lambda letters: len(set(letters)) == 1, zip(*(run.name for run in members), strict=False))
    shared = "".join(letters[0] for letters in alike).rstrip(_BETWEEN).removesuffix("seed").rstrip(_BETWEEN)
    return shared or members[0].name


def by_kind(runs: list[FinishedRun], task: str) -> list[tuple[str, list[float]]]:
    """Name of each kind of run and the percent of each seed."""
    return [
        (kind_name(members), [scores_of(run)[task] for run in members if task in scores_of(run)])
        for members in kinds_of(runs)
    ]


def mean_rows(runs: list[FinishedRun], tasks: list[str]) -> list[dict[str, Any]]:
    """A row of the table for each kind of run with several seeds: mean ± standard deviation of each task."""
    rows = []
    for members in kinds_of(runs):
        if len(members) < 2:
            continue
        scores = {}
        for task in tasks:
            values = [scores_of(run)[task] for run in members if task in scores_of(run)]
            if len(values) > 1:
                scores[task] = f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"
        if scores:
            rows.append({"name": f"{kind_name(members)}, mean of {len(members)} runs", "scores": scores})
    return rows


def overview(runs: list[FinishedRun]) -> Chart | None:
    """All tasks in one chart, like the first figure of the paper; of runs of one kind the mean."""
    tasks, rows = summary(runs)
    if sum(len(row["scores"]) for row in rows) < 2:  # one bar shows nothing that the table does not say
        return None
    if not any(len(members) > 1 for members in kinds_of(runs)):
        named = [(row["name"], [row["scores"].get(task) for task in tasks]) for row in rows if row["scores"]]
        return Chart("All tasks", "bars", [Series(name, tasks, values) for name, values in named], y="%")
    kept = [task for task in tasks if any(values for _, values in by_kind(runs, task))]  # not "…, RUN"
    rows_of_kinds = zip(*(by_kind(runs, task) for task in kept), strict=True)
    series = [
        Series(row[0][0], kept, [mean_of(values) for _, values in row])
        for row in rows_of_kinds
        if any(values for _, values in row)
    ]
    return Chart("All tasks, mean over seeds", "bars", series, y="%")


def mean_of(values: list[float]) -> float | None:
    """None without values."""
    return statistics.mean(values) if values else None
