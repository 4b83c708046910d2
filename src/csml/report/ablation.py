"""The outcome of an ablation as files: the table, its numbers as CSV and JSON, and a plot."""

import csv
import json
import os
from pathlib import Path

import torch

from csml.config.ablations import Ablation
from csml.data.cache import atomic_write
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
        "commands": {v.name: ["csml", "pretrain", *v.arguments] for v in ablation.variations},
        "times": {v.name: v.times for v in ablation.variations if v.times},
        "runs": [{"variation": o.variation.name, "seed": o.seed, **o.measured} for o in outcomes],
        "history": [{"variation": o.variation.name, "seed": o.seed, "epochs": o.history} for o in outcomes],
        "summary": as_json(table),
        "failed": failed,
    }
    with atomic_write(folder / "results.json") as path:
        path.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    figure = draw(ablation, outcomes)
    for suffix in ("png", "svg"):
        with atomic_write(folder / f"plot.{suffix}") as path:
            figure.savefig(path, format=suffix, dpi=150)
