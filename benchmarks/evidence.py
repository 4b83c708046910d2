"""What the benchmarks that train leave for docs/results.md, and an epoch as they train it."""

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from csml.ablations.outcomes import Outcome, as_json, summarize
from csml.ablations.plans import Ablation, Variation
from csml.ablations.plot import draw
from csml.runs.interruption import StopSignals
from csml.runs.metadata import commit
from csml.training.loop import TrainingLoop


def timed_epoch(loop: TrainingLoop) -> float:
    """Train for an epoch, search included; seconds of it."""
    start = time.perf_counter()
    with StopSignals() as signals:
        loop.task.before_epoch(loop.epoch)
        loop.train_epoch(signals)
    seconds = time.perf_counter() - start
    loop.epoch, loop.step = loop.epoch + 1, 0
    return seconds


def write_results(folder: Path, title: str, module: str, outcomes: list[Outcome], **more: Any) -> None:
    """results.json as `csml ablate` writes it, so that `csml tables` can show it, and `more`."""
    results = {
        "title": title,
        "seeds": sorted({o.seed for o in outcomes}),
        "paper": {},
        "command": shlex.join(["python", "-m", module, *sys.argv[1:]]),
        "commit": commit(),
        "machine": f"{torch.get_num_threads()} of {os.cpu_count()} CPU cores",
        "runs": [{"variation": o.variation.name, "seed": o.seed, **o.measured} for o in outcomes],
        "summary": as_json(summarize(outcomes)),
        "failed": {},
        **more,
    }
    (folder / "results.json").write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")


def earlier(folder: Path, parser: argparse.ArgumentParser, settings: list[str]) -> list[Outcome]:
    """What `write_results` has left in `folder`; an error if the words that `parser` does not know were others then."""
    path = folder / "results.json"
    if not path.exists():
        return []
    found = json.loads(path.read_text())
    _, words = parser.parse_known_args(shlex.split(found["command"])[3:])  # after python -m module
    if words != settings:
        raise SystemExit(f"{path} was made with other settings ({shlex.join(words)}); choose another --output")
    return [
        Outcome(Variation(run.pop("variation"), None, {}, {}, {}), run.pop("seed"), run, [])
        for run in map(dict, found["runs"])
    ]


def fill_rows(
    parser: argparse.ArgumentParser,
    module: str,
    rows: Sequence[str],
    measure: Callable[[argparse.Namespace, str, int], dict[str, float]],
) -> None:
    """Measure rows for every seed, write results.json after each, and plot them; rows that are there are kept.

    Args:
        parser: of the command line; gets --seeds, --rows, --runs and --output, and has a --title.
        module: of the command, as `python -m` calls it.
        rows: all there are, in their order.
        measure: (command line, row, seed) → what was measured.
    """
    name = module.rpartition(".")[2].replace("_", "-")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0])
    parser.add_argument("--rows", nargs="*", default=list(rows))
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--output", type=Path, default=Path(name), help="rows in this folder are kept")
    asked = parser.parse_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    done = {(o.seed, o.variation.name): o for o in earlier(asked.output, parser, [])}
    for seed, row in product(asked.seeds, asked.rows):
        if (seed, row) not in done:
            done[seed, row] = Outcome(Variation(row, None, {}, {}, {}), seed, measure(asked, row, seed), [])
            print(row, seed, done[seed, row].measured, flush=True)
            write_results(asked.output, asked.title, module, _in_order(done, rows))
    shown = Ablation(name, asked.title, tuple(asked.seeds), (), {}, {}, "dots")
    draw(shown, _in_order(done, rows)).savefig(asked.output / "plot.png", dpi=150)


def _in_order(done: dict[tuple[int, str], Outcome], rows: Sequence[str]) -> list[Outcome]:
    """By seed, and in the order of the rows."""
    return [done[seed, row] for seed, row in product(sorted({seed for seed, _ in done}), rows) if (seed, row) in done]


def new_plot(x_label: str) -> tuple[Figure, Axes]:
    """20-NN against something."""
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.add_subplot()
    axes.set(xlabel=x_label, ylabel="20-NN, %")
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def save_plot(figure: Figure, folder: Path) -> None:
    figure.axes[0].legend(frameon=False)
    figure.savefig(folder / "plot.png", dpi=150)
