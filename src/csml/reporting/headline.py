"""The result in one sentence, with what it has to beat; runs that differ only in their seed count together."""

import statistics
from pathlib import Path
from typing import Any

from csml.evaluation.baselines import TITLES
from csml.reporting.baselines import baselines_of
from csml.reporting.runs import FinishedRun
from csml.reporting.scores import scores_of, summary

_OWN = ("seed", "out")
"""Settings in which runs of one kind may differ."""
_BY = {"-NN": "by their neighbours", "linear": "with a linear classifier on its features", "few": "after fine-tuning"}
_AS = {"largest class": "always guessing the largest class"}


def headline(runs: list[FinishedRun]) -> str:
    """A sentence for people who know nothing of the method, such as "csml recognises 64 of 100 test pictures …"."""
    tasks, _ = summary(runs)
    task = next((task for task in ("20-NN", *tasks) if any(task in scores_of(run) for run in runs)), None)
    if task is None:
        return f"{_list([run.name for run in runs[:3]])}: not measured yet. The map below shows what was learnt."
    kinds = [(name, values) for name, values in by_kind(runs, task) if values]
    kinds.sort(key=lambda kind: -statistics.mean(kind[1]))
    (best, values), *others = kinds
    by = next((words for key, words in _BY.items() if key in task), f"({task})")
    what = "recognises" if "AP" not in task else "scores"
    first = f"{best} {what} {_spread(values)} of 100 test pictures {by}"
    beside = [f"{name} {_spread(shares)}" for name, shares in others]
    beside += [f"{name} {share:.0f}" for name, share in _to_beat(runs, task)]
    minutes = next((row["minutes"] for row in summary(runs)[1] if row["name"] == best and row["minutes"]), None)
    took = "" if not minutes else f" It took {_time(minutes)}."
    return f"{first}{'; ' if beside else ''}{', '.join(beside)}.{took}"


def _to_beat(runs: list[FinishedRun], task: str) -> list[tuple[str, float]]:
    """Baselines in percent, the best of each over the runs, the hardest to beat first."""
    best: dict[str, float] = {}
    for run in runs:
        for name, scores in baselines_of(run).items():
            if task in scores:
                best[name] = max(best.get(name, 0.0), scores[task])
    told = [(_AS.get(TITLES[name], TITLES[name]), share) for name, share in best.items()]
    return sorted(told, key=lambda one: -one[1])


def by_kind(runs: list[FinishedRun], task: str) -> list[tuple[str, list[float]]]:
    """Name of each kind of run and the percent of each seed."""
    return [
        (_kind_name(members), [scores_of(run)[task] for run in members if task in scores_of(run)])
        for members in kinds_of(runs)
    ]


def kinds_of(runs: list[FinishedRun]) -> list[list[FinishedRun]]:
    """Runs of equal settings but for the seed, together."""
    found: dict[str, list[FinishedRun]] = {}
    for run in runs:
        key = repr(sorted((k, str(v)) for k, v in run.settings.items() if k not in _OWN))
        found.setdefault(f"{run.command} {key}", []).append(run)
    return list(found.values())


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
            rows.append({"name": f"{_kind_name(members)}, mean of {len(members)} seeds", "scores": scores})
    return rows


def without_folders(value: Any) -> str:
    """A setting as a page that is passed on may show it: of a path of this machine only the end."""
    text = str(value)
    return f"…/{Path(text).name}" if text.startswith(("/", "~")) else text


def _kind_name(members: list[FinishedRun]) -> str:
    if len(members) == 1:
        return members[0].name
    parents = {run.root.parent.name for run in members}
    return parents.pop() if len(parents) == 1 and members[0].root.name.startswith("seed") else members[0].name


def _spread(values: list[float]) -> str:
    mean = statistics.mean(values)
    return f"{mean:.0f}" if len(values) == 1 else f"{mean:.0f} ± {statistics.stdev(values):.0f}"


def _time(minutes: float) -> str:
    if minutes < 1:
        return f"{max(1, round(60 * minutes))} seconds"
    return f"{minutes:.0f} minutes" if minutes < 90 else f"{minutes / 60:.1f} hours"


def _list(names: list[str]) -> str:
    return " and ".join(names)
