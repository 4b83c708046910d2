"""The result and its baselines in one sentence."""

import re
import statistics
from pathlib import Path
from typing import Any

from csml.evaluation.baselines import TITLES
from csml.reporting.baselines import baselines_of
from csml.reporting.runs import FinishedRun
from csml.reporting.scores import scores_of, summary
from csml.reporting.seed_groups import scores_by_group
from csml.runs.metadata import read_metadata

_BY = {"-NN": "by their neighbours", "linear": "with a linear classifier on its features", "few": "after fine-tuning"}
_AS = {"largest class": "always guessing the largest class"}


def headline(runs: list[FinishedRun], labeled: bool = True) -> str:
    """A sentence for readers without knowledge of the method, such as "csml recognises 64 of 100 test pictures …".

    Args:
        runs: the runs of the report.
        labeled: whether the pictures have labels, so that accuracy can be measured.
    """
    tasks, _ = summary(runs)
    task = next((task for task in ("20-NN", *tasks) if any(task in scores_of(run) for run in runs)), None)
    if task is None:
        return _unmeasured(runs, labeled)
    kinds = [(name, values) for name, values in scores_by_group(runs, task) if values]
    kinds.sort(key=lambda kind: -statistics.mean(kind[1]))
    (best, values), *others = kinds
    if " AP" in task:
        first = f"{best} finds objects with an average precision of {_spread(values)} of 100 ({task})"
    else:
        by = _after(task) or next((words for key, words in _BY.items() if key in task), f"({task})")
        first = f"{best} recognises {_spread(values)} of 100 test pictures {by}"
    beside = [f"{name} {_spread(shares)}" for name, shares in others]
    beside += [f"{name} {share:.0f}" for name, share in _baselines(runs, task)]
    minutes = next((row["minutes"] for row in summary(runs)[1] if row["name"] == best and row["minutes"]), None)
    took = "" if not minutes else f" It took {_time(minutes)}."
    return f"{first}{'; ' if beside else ''}{', '.join(beside)}.{took}{_tuned(runs, tasks) if '-NN' in task else ''}"


def _after(task: str) -> str | None:
    """Of a classifier that learnt from a few labels: how many."""
    labels = re.search(r"few labels \(([\d,]+)\)", task)
    return labels and f"after learning from {labels[1]} labels"


def _tuned(runs: list[FinishedRun], tasks: list[str]) -> str:
    """How well the weights of the first sentence do after training on a few labels."""
    for task in tasks:
        kinds = [(name, values) for name, values in scores_by_group(runs, task) if values]
        if kinds and (after := _after(task)):
            name, values = max(kinds, key=lambda kind: statistics.mean(kind[1]))
            return f" {name} recognises {_spread(values)} {after}."
    return ""


def estimated(run: FinishedRun) -> str | None:
    """How good a classifier probably is for which no label was held out; None for other runs."""
    result = run.results.get("finetune", {})
    if "top1" in result or "labels" not in result:
        return None
    first = f"{run.name} learnt from {result['labels']:,} labels"
    if result.get("expected") is None:
        return f"{first}, too few to estimate its accuracy."
    sure = f"{100 * result['expected']:.0f} ± {100 * result['error']:.0f}"
    return f"{first} and is expected to be right on {sure} of 100 such pictures, by cross-validation."


def _unmeasured(runs: list[FinishedRun], labeled: bool) -> str:
    if estimates := [line for run in runs if (line := estimated(run))]:
        return " ".join(estimates[:3])
    names = _list([run.name for run in runs[:3]]) + (" and others" if len(runs) > 3 else "")
    images = max((read_metadata(run.root).get("images", 0) for run in runs), default=0)
    first = f"{names} learnt from {images:,} pictures" if images else names
    if labeled:
        return f"{first}: not measured yet. The map below shows what was learnt."
    return (
        f"{first} without labels, so there is no accuracy to report: the map and the neighbours show what was learnt."
    )


def _baselines(runs: list[FinishedRun], task: str) -> list[tuple[str, float]]:
    """Baselines in percent, the best of each over the runs, strongest first."""
    best: dict[str, float] = {}
    for run in runs:
        for name, scores in baselines_of(run).items():
            if task in scores:
                best[name] = max(best.get(name, 0.0), scores[task])
    named = [(_AS.get(TITLES[name], TITLES[name]), share) for name, share in best.items()]
    return sorted(named, key=lambda one: -one[1])


def without_folders(value: Any) -> str:
    """A setting for a page that may be shared: paths of this machine are reduced to their last part."""
    text = str(value)
    return f"…/{Path(text).name}" if text.startswith(("/", "~")) else text


def near(text: str) -> str:
    """A message without the folders of this machine: only the last part of each path."""
    return re.sub(r"(?<!\S)[/~]\S*/(?=\S)", "…/", text)


def _spread(values: list[float]) -> str:
    mean = statistics.mean(values)
    return f"{mean:.0f}" if len(values) == 1 else f"{mean:.0f} ± {statistics.stdev(values):.0f}"


def _time(minutes: float) -> str:
    if minutes < 1:
        return f"{max(1, round(60 * minutes))} seconds"
    return f"{minutes:.0f} minutes" if minutes < 90 else f"{minutes / 60:.1f} hours"


def _list(names: list[str]) -> str:
    return " and ".join(names)
