"""The measurements of an ablation, run by run, and the table of means and deviations."""

import statistics
from dataclasses import dataclass
from typing import Any

from csml.ablations.plans import FewLabels, Variation
from csml.files import read_json
from csml.runs.directory import RunDirectory
from csml.runs.metrics import read_metrics


@dataclass(frozen=True)
class Outcome:
    """One run of an ablation."""

    variation: Variation
    seed: int
    measured: dict[str, float]
    """name of a measure → accuracy as a share, or minutes"""
    history: list[dict[str, float]]
    """measurements by epoch: purity and turnover of Ω, 20-NN"""
    commit: str | None = None
    """commit of the sources that trained it, if known"""

    @property
    def title(self) -> str:
        return self.variation.at(self.seed)


def measure(run: RunDirectory, few: FewLabels | None) -> dict[str, float]:
    """Measurements from the files of an evaluated run: kNN, linear by stage, few labels if set, Ω, minutes of
    training."""
    found: dict[str, float] = {}
    if run.result("knn").exists():
        found |= {f"{k}-NN": share for k, share in read_json(run.result("knn"))["accuracy"].items()}
    if run.result("linear").exists():
        stages = read_json(run.result("linear"))["stages"]
        found |= {f"linear, stage {stage}": scores["top1"] for stage, scores in sorted(stages.items())}
    if few:
        found |= _few_labels(run, few)
    records = read_metrics(run.metrics)
    for name in ("purity", "turnover"):
        if values := [record[f"omega/{name}"] for record in records if record.get(f"omega/{name}") is not None]:
            found[f"{name} of Ω"] = values[-1]
    if records:
        found["minutes"] = sum(record["seconds"] + record.get("search_seconds", 0.0) for record in records) / 60
    return found


def history(run: RunDirectory) -> list[dict[str, float]]:
    """Measurements of a run during training."""
    names = {"epoch": "epoch", "omega/purity": "purity", "omega/turnover": "turnover", "knn20": "20-NN"}
    rows = [
        {names[key]: record[key] for key in names if record.get(key) is not None}
        for record in read_metrics(run.metrics)
    ]
    return [row for row in rows if len(row) > 1]


def _few_labels(run: RunDirectory, few: FewLabels) -> dict[str, float]:
    """`fine-tuned, 1 %` and the like: top-1."""
    names = {"supervised": "labels alone", "finetune": "fine-tuned"}
    if few.mine is not None:  # another ablation may have mined the shared run
        names["mine"] = "mined"
    found = {}
    for fraction in sorted(few.fractions):
        for command, name in names.items():
            judged = run.few_labels(fraction, command).result(command)
            if judged.exists():
                found[f"{name}, {100 * fraction:g} %"] = read_json(judged)["top1"]
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
    """The table: mean ± deviation over seeds, shares in percent; beside them the paper's value."""
    return _markdown(summarize(outcomes), paper)


def as_json(table: Summary) -> dict[str, dict[str, dict[str, float | None]]]:
    """The table for results.json."""
    return {
        name: {key: dict(zip(("mean", "deviation", "seeds"), cell, strict=True)) for key, cell in row.items()}
        for name, row in table.items()
    }


def table_of(results: dict[str, Any]) -> str:
    """The table in Markdown, from results.json."""
    table = {
        name: {key: (cell["mean"], cell["deviation"], cell["seeds"]) for key, cell in row.items()}
        for name, row in results["summary"].items()
    }
    return _markdown(table, results["paper"])


def _markdown(table: Summary, paper: dict[str, float] | None) -> str:
    keys = [*measures(table), "seeds", *(["paper"] if paper else [])]
    lines = ["| | " + " | ".join(keys) + " |", "|---|" + "---|" * len(keys)]
    for name, row in table.items():
        cells = {key: _cell(key, row.get(key)) for key in keys}
        cells["seeds"] = str(max(n for _, _, n in row.values()))
        if paper:
            cells["paper"] = f"{paper[name]:.1f}" if name in paper else ""
        lines.append(f"| {name} | " + " | ".join(cells[key] for key in keys) + " |")
    return "\n".join(lines) + "\n"


def measures(table: dict[str, dict[str, Any]]) -> list[str]:
    """All measures of the table, minutes last."""
    keys = list(dict.fromkeys(key for row in table.values() for key in row))
    return sorted(keys, key=lambda key: (key == "minutes", key.endswith("of Ω")))


def _cell(key: str, cell: tuple[float, float | None, int] | None) -> str:
    if cell is None:
        return ""
    factor = 1 if key.startswith("minutes") else 100
    mean, spread, _ = cell
    return f"{factor * mean:.1f}" + ("" if spread is None else f" ± {factor * spread:.1f}")
