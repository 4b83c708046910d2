"""`python -m benchmarks.purity`: what neighbours would be worth if more of them were right.

CsMl is given, instead of the k nearest images, the nearest of the anchor's class and the nearest of others in a given
share. No label is used otherwise. The row without neighbours says from which share on they pay.
"""

import argparse
import tempfile
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.evidence import earlier, new_plot, save_plot, timed_epoch, write_results
from benchmarks.settings import pretrain_settings
from csml.ablations.outcomes import Outcome, summarize
from csml.ablations.plans import Variation
from csml.data.loading import fabric_for
from csml.data.open import open_data
from csml.runs.directory import RunDirectory
from csml.search.omega import Omega, purity
from csml.training.loop import TrainingLoop
from csml.training.pretraining import Pretraining

_DEPTH = 300
"""Neighbours searched, of which some are chosen."""


class Sorted(Pretraining):
    """Pre-training whose Ω has a given share of neighbours of the anchor's class."""

    share: float
    k: int

    def before_epoch(self, epoch: int) -> None:
        before = self.search.found
        super().before_epoch(epoch)
        if self.search.found is not None and self.search.found is not before:
            self.search.found = of_purity(self.search.found, self.data.train.labels, self.k, self.share)


def of_purity(omega: Omega, labels: np.ndarray, k: int, share: float) -> Omega:
    """The nearest of its own class and the nearest of others, k in all; `(N, K)` → `(N, k)`, K large enough."""
    right = labels[omega.indices] == labels[:, None]  # (N, K)
    wanted = round(share * k)
    own = np.argsort(~right, axis=1, kind="stable")[:, :wanted]  # (N, wanted): columns, the nearest first
    others = np.argsort(right, axis=1, kind="stable")[:, : k - wanted]
    columns = np.concatenate([own, others], axis=1)  # (N, k)
    indices, similarities = (
        np.take_along_axis(values, columns, axis=1) for values in (omega.indices, omega.similarities)
    )
    return Omega(indices, similarities, omega.epoch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shares", type=float, nargs="*", default=[0.3, 0.5, 0.7, 1.0])
    parser.add_argument("--title", default="Neighbours of a given purity")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0])
    parser.add_argument("--output", type=Path, default=Path("purity"), help="folder of results; rows in it are kept")
    asked, settings = parser.parse_known_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    words = ["--preset", "cifar10-cpu", "--model.stages", "[4]", "--neighbors.keep", "1", *settings]
    done = {(o.variation.name, o.seed): o for o in earlier(asked.output, parser, settings)}
    for seed, share in product(asked.seeds, (None, *asked.shares)):
        row = (_name(share), seed)
        if row not in done:
            done[row] = _train([*words, "--seed", str(seed)], share)
            print(*row, done[row].measured, flush=True)
            _write(asked.output, asked.title, list(done.values()))


def _train(words: list[str], share: float | None) -> Outcome:
    config = pretrain_settings([*words, "--monitor.tensorboard", "false"])
    k = config.neighbors.k
    config = replace(config, neighbors=replace(config.neighbors, k=0 if share is None else _DEPTH))
    data = open_data(config.data, config.images)
    run = RunDirectory(Path(tempfile.mkdtemp(prefix="csml-purity-")))
    fabric = fabric_for(data.train, config.images.workers, config.hardware)
    training = Sorted(config, data, run, fabric)
    training.share, training.k = share or 0.0, k
    loop = TrainingLoop(training, config, run, fabric)
    spent = sum(timed_epoch(loop) for _ in range(config.epochs))
    measured = {"20-NN": training.online_knn(loop.epoch)["knn20"], "minutes": spent / 60}
    if share is not None:
        assert training.search.found is not None
        measured["purity of Ω"] = purity(training.search.found.indices, data.train.labels) or 0.0
    return Outcome(Variation(_name(share), None, {}, {}, {}), config.seed, measured, [])


def _name(share: float | None) -> str:
    return "no neighbours" if share is None else f"{share:.0%} of the anchor's class"


def _write(folder: Path, title: str, outcomes: list[Outcome]) -> None:
    """results.json and plot.png."""
    write_results(folder, title, "benchmarks.purity", outcomes)
    figure, axes = new_plot("purity of Ω, %")
    without, *others = summarize(outcomes).values()
    axes.axhline(100 * without["20-NN"][0], linestyle="--", color="gray", label=_name(None))
    points = sorted([100 * row[name][0] for name in ("purity of Ω", "20-NN")] for row in others)  # means over seeds
    axes.plot([x for x, _ in points], [y for _, y in points], "o-", label="neighbours")
    save_plot(figure, folder)


if __name__ == "__main__":
    main()
