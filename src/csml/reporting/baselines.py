"""Baselines of the runs in a report, from their result files."""

from typing import Any

from csml.evaluation.baseline_comparison import shortfall
from csml.evaluation.baselines import CHANCE, TITLES
from csml.reporting.runs import FinishedRun
from csml.reporting.scores import classified, scores_of


def baseline_rows(runs: list[FinishedRun]) -> list[dict[str, Any]]:
    """Baselines as rows of the summary; a baseline that is the same for all runs appears once."""
    found: list[tuple[str, dict[str, float], list[str]]] = []
    for run in runs:
        for name, scores in baselines_of(run).items():
            fits = (one for one in found if one[0] == name and all(one[1].get(t, v) == v for t, v in scores.items()))
            same = next(fits, None)
            if same is None:
                found.append((name, dict(scores), [run.name]))
            else:
                same[1].update(scores)
                same[2].append(run.name)
    several = {name for name, _, _ in found if sum(other == name for other, _, _ in found) > 1}
    rows = []
    for name, percents, of in sorted(found, key=lambda one: list(TITLES).index(one[0])):
        title = f"{TITLES[name]} ({', '.join(of)})" if name in several else TITLES[name]
        rows.append({"name": title, "minutes": None, "scores": percents})
    return rows


def shortfalls(runs: list[FinishedRun]) -> list[str]:
    """A sentence for each run that is below one of its baselines."""
    found = []
    for run in runs:
        own, beside = scores_of(run), baselines_of(run)
        task = next((task for task in own if any(task in scores for scores in beside.values())), None)
        if task is not None:
            shares = {name: scores[task] / 100 for name, scores in beside.items() if task in scores}
            line = shortfall(str(run.root), task, own[task] / 100, shares, _tested(run, task))
            # The page is passed on: a file of this machine is named from the run on.
            found += [f"{run.name}: {line.replace(str(run.root), run.name)}."] if line else []
    return found


def _tested(run: FinishedRun, task: str) -> int | None:
    """The number of test images of a task; None for results that do not have it."""
    protocol = "linear" if task.startswith("linear") else "knn" if task.endswith("-NN") else ""
    tested: int | None = run.results.get(protocol, {}).get("tested")
    return tested


def baselines_of(run: FinishedRun) -> dict[str, dict[str, float]]:
    """Baseline → name of a task → percent."""
    found: dict[str, dict[str, float]] = {}
    knn = run.results.get("knn", {}).get("baselines", {}).get("accuracy", {})
    for name, shares in knn.items():
        found[name] = {f"{k}-NN": 100 * share for k, share in shares.items()}
    linear = run.results.get("linear", {}).get("baselines", {}).get("top1", {})
    for name, shares in linear.items():
        scores = {f"linear, stage {stage}": 100 * share for stage, share in sorted(shares.items())}
        found.setdefault(name, {}).update(scores)
    for task, result in classified(run).items():
        of_each = [sum(row) for row in result.get("confusion", [])]  # test images of each class
        if sum(of_each):
            found.setdefault(CHANCE, {})[task] = 100 * max(of_each) / sum(of_each)
    return {name: scores for name, scores in found.items() if name in TITLES}
