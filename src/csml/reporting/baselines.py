"""What the runs of a report have to beat, as their result files say it."""

from typing import Any

from csml.evaluation.baselines import TITLES
from csml.evaluation.verdict import shortfall
from csml.reporting.runs import FinishedRun
from csml.reporting.scores import scores_of


def baseline_rows(runs: list[FinishedRun]) -> list[dict[str, Any]]:
    """What the runs have to beat, as rows of the summary; a baseline that is the same for all runs stands once."""
    found: dict[tuple[str, tuple[tuple[str, float], ...]], list[str]] = {}
    for run in runs:
        for name, scores in baselines_of(run).items():
            found.setdefault((name, tuple(scores.items())), []).append(run.name)
    several = {name for name, _ in found if sum(other == name for other, _ in found) > 1}
    rows = []
    for (name, percents), of in sorted(found.items(), key=lambda item: list(TITLES).index(item[0][0])):
        title = f"{TITLES[name]} ({', '.join(of)})" if name in several else TITLES[name]
        rows.append({"name": title, "minutes": None, "scores": dict(percents)})
    return rows


def shortfalls(runs: list[FinishedRun]) -> list[str]:
    """A sentence for each run that one of its baselines beats."""
    found = []
    for run in runs:
        own, beside = scores_of(run), baselines_of(run)
        task = next((task for task in own if any(task in scores for scores in beside.values())), None)
        if task is not None:
            shares = {name: scores[task] / 100 for name, scores in beside.items() if task in scores}
            line = shortfall(str(run.root), task, own[task] / 100, shares)
            # The page is passed on: a file of this machine is named from the run on.
            found += [f"{run.name}: {line.replace(str(run.root), run.name)}."] if line else []
    return found


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
    return {name: scores for name, scores in found.items() if name in TITLES}
