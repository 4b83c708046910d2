"""Writes and reads the results of an ablation: the table, its numbers as CSV and JSON, and a plot."""

import csv
import json
import logging
import os
import shlex
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from csml.ablations.outcomes import Outcome, as_json, markdown, measures, summarize
from csml.ablations.plans import LABELS_ALONE, Ablation
from csml.errors import CsmlError
from csml.files import atomic_write, read_object
from csml.runs.metadata import commit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

log = logging.getLogger("csml")


def write_outcome(
    folder: Path, ablation: Ablation, outcomes: list[Outcome], failed: dict[str, str], made: dict[str, str | None]
) -> None:
    """Write table.md, runs.csv, results.json, plot.png and plot.svg; each file is replaced atomically.

    `made`: how it was made, for `csml tables`: command, scale, setting.
    """
    table = summarize(outcomes)
    keys = measures(table)
    text = f"# {ablation.title}\n\n{markdown(outcomes, ablation.paper)}"
    text += "".join(f"\n{name}: {problem}\n" for name, problem in failed.items())
    with atomic_write(folder / "table.md") as path:
        path.write_text(text, "utf-8")
    with atomic_write(folder / "runs.csv") as path, path.open("w", newline="", encoding="utf-8") as file:
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
        "commands": {v.name: v.command for v in ablation.variations},
        "times": {v.name: v.times for v in ablation.variations if v.times},
        "runs": [{"variation": o.variation.name, "seed": o.seed, **o.measured} for o in outcomes],
        "history": [
            {"variation": o.variation.name, "seed": o.seed, "commit": o.commit, "epochs": o.history} for o in outcomes
        ],
        "summary": as_json(table),
        "failed": failed,
    }
    with atomic_write(folder / "results.json") as path:
        path.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n", "utf-8")
    draw = _draw()
    if draw is None:
        return
    figure = draw(ablation, outcomes)
    for suffix in ("png", "svg"):
        with atomic_write(folder / f"plot.{suffix}") as path:
            figure.savefig(path, format=suffix, dpi=150)


@cache  # the files are written after every run, but the warning should appear once
def _draw() -> "Callable[[Ablation, list[Outcome]], Figure] | None":
    """`csml.ablations.plot.draw`; None without the extra: tables are useful without a plot."""
    try:
        from csml.ablations.plot import draw
    except CsmlError as error:
        log.warning("plot.png and plot.svg are not written: %s", error)
        return None
    return draw


def read_outcomes(folder: Path, ablation: Ablation, setting: str) -> list[Outcome]:
    """Read the outcomes of this ablation's runs from `folder`; raises if their settings differ."""
    path = folder / "results.json"
    if not path.exists():
        raise CsmlError(f"earlier: there is no {path}; give the --out of another csml ablate")
    found = read_object(path)
    if "commands" not in found or "setting" not in found:
        raise CsmlError(f"earlier: {path} is not of csml ablate")
    if found["setting"] != setting:
        raise CsmlError(f"earlier: {folder} has {found['setting']}, this is {setting}")
    rows = {v.name: v for v in (*ablation.variations, LABELS_ALONE)}
    for name, command in found["commands"].items():
        same = name not in rows or (command, found["times"].get(name, {})) == (rows[name].command, rows[name].times)
        if not same:
            raise CsmlError(f"earlier: in {folder} {name!r} was made otherwise, by {shlex.join(command)}")
    outcomes = []
    for run, epochs in zip(found["runs"], found["history"], strict=True):
        name, seed = run.pop("variation"), run.pop("seed")
        if name in rows:
            outcomes.append(Outcome(rows[name], seed, run, epochs["epochs"], epochs.get("commit", found["commit"])))
    return outcomes
