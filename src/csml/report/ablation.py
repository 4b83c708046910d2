"""The outcome of an ablation as files: the table, its numbers as CSV and JSON, and a plot; and read again."""

import csv
import json
import os
import shlex
from pathlib import Path

import torch

from csml.config.ablations import LABELS_ALONE, Ablation, Variation
from csml.data.cache import atomic_write
from csml.errors import CsmlError
from csml.report.ablation_plot import draw
from csml.report.outcomes import Outcome, as_json, markdown, measures, summarize
from csml.training.run_directory import commit


def write_outcome(
    folder: Path, ablation: Ablation, outcomes: list[Outcome], failed: dict[str, str], made: dict[str, str | None]
) -> None:
    """table.md, runs.csv, results.json, plot.png and plot.svg, each replaced as a whole.

    `made`: how, as `csml tables` tells it: command, scale, setting.
    """
    table = summarize(outcomes)
    keys = measures(table)
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
        **made,
        "commit": commit(),
        "machine": f"{os.cpu_count()} CPU cores" if not torch.cuda.is_available() else torch.cuda.get_device_name(),
        "commands": {v.name: _command(v) for v in ablation.variations},
        "times": {v.name: v.times for v in ablation.variations if v.times},
        "runs": [{"variation": o.variation.name, "seed": o.seed, **o.measured} for o in outcomes],
        "history": [
            {"variation": o.variation.name, "seed": o.seed, "commit": o.commit, "epochs": o.history} for o in outcomes
        ],
        "summary": as_json(table),
        "failed": failed,
    }
    with atomic_write(folder / "results.json") as path:
        path.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    figure = draw(ablation, outcomes)
    for suffix in ("png", "svg"):
        with atomic_write(folder / f"plot.{suffix}") as path:
            figure.savefig(path, format=suffix, dpi=150)


def read_outcomes(folder: Path, ablation: Ablation, setting: str) -> list[Outcome]:
    """What `write_outcome` has left in `folder` of this ablation's runs; an error if their settings were others."""
    path = folder / "results.json"
    if not path.exists():
        raise CsmlError(f"earlier: there is no {path}; give the --out of another csml ablate")
    found = json.loads(path.read_text())
    if "commands" not in found or "setting" not in found:
        raise CsmlError(f"earlier: {path} is not of csml ablate")
    if found["setting"] != setting:
        raise CsmlError(f"earlier: {folder} has {found['setting']}, this is {setting}")
    rows = {v.name: v for v in (*ablation.variations, LABELS_ALONE)}
    for name, command in found["commands"].items():
        same = name not in rows or (command, found["times"].get(name, {})) == (_command(rows[name]), rows[name].times)
        if not same:
            raise CsmlError(f"earlier: in {folder} {name!r} was made otherwise, by {shlex.join(command)}")
    outcomes = []
    for run, epochs in zip(found["runs"], found["history"], strict=True):
        name, seed = run.pop("variation"), run.pop("seed")
        if name in rows:
            outcomes.append(Outcome(rows[name], seed, run, epochs["epochs"], epochs.get("commit", found["commit"])))
    return outcomes


def _command(variation: Variation) -> list[str]:
    return ["csml", "pretrain", *variation.arguments]
