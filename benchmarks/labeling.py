"""`python -m benchmarks.labeling NAME=FOLDER …`: labels needed for an accuracy, chosen by the queue and at random.

Each FOLDER has train/ and val/ with a folder per class. Labels are given round by round to images of train/, those that
`select_next` asks for or random ones; after each round logistic regression on the frozen features is tested on val/.
A seed draws nine tenths of train/ to label from, the same for every rule. With --tune val/ stays unseen, and a fifth of
train/ takes its place: to choose between rules.

Features and finished curves are kept in --output, so that a stopped command goes on where it was.
"""

import argparse
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import csml
from benchmarks.evidence import new_plot, save_plot
from csml.evaluation.few_labels import DEFAULT_PENALTY, fit_frozen
from csml.evaluation.selection import By, select_next
from csml.files import read_json, save_array, write_json

RULES: dict[str, By | None] = {"at random": None, "the queue": "both", "coverage": "coverage", "margin": "uncertainty"}
ROUNDS = 24
"""Rounds of the queue; random labels go on for as many rounds again, so that the two can be compared."""

Curve = list[tuple[int, float]]
"""Numbers of labels, and the test accuracy with them."""


class Photos(NamedTuple):
    """Features `(N, C)` of length one, and labels `(N,)`."""

    features: Tensor
    labels: Tensor

    def of(self, ids: Tensor) -> "Photos":
        return Photos(self.features[ids], self.labels[ids])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", help="NAME=FOLDER")
    parser.add_argument("--output", type=Path, default=Path("labeling"), help="folder for results and plots")
    parser.add_argument("--weights", default="lite0")
    parser.add_argument("--size", type=int, default=112, help="side of the images in pixels")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rules", default="at random,the queue", help=f"some of: {','.join(RULES)}")
    parser.add_argument("--tune", action="store_true", help="test on a fifth of train/")
    asked = parser.parse_args()
    file = asked.output / ("tuned.json" if asked.tune else "results.json")
    results = read_json(file) if file.exists() else {}
    for name, folder in (text.split("=", 1) for text in asked.folders):
        parts = [_photos(asked, name, Path(folder) / part) for part in ("train", "val")]
        classes = int(parts[0].labels.max()) + 1
        curves = results.setdefault(name, {})
        for seed in range(asked.seeds):
            pool, test = _split(*parts, seed, asked.tune)
            for rule in asked.rules.split(","):
                known = curves.setdefault(rule, {})
                if str(seed) not in known:
                    known[str(seed)] = labelled(pool, test, RULES[rule], classes, seed)
                    write_json(file, results, indent=None)
                print(name, rule, seed, _in_words(known[str(seed)]), flush=True)
    for name, curves in results.items():
        _draw(asked.output, name, curves)
        print(f"\n{name}\n{table(curves)}")


def labelled(pool: Photos, test: Photos, by: By | None, classes: int, seed: int) -> Curve:
    """Label the pool in rounds of about one image a class; the accuracy after each."""
    step = max(10, classes)
    labels = torch.full_like(pool.labels, -1)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    probabilities: Tensor | None = None
    curve: Curve = []
    for number in range(ROUNDS if by else 2 * ROUNDS):
        if by is None:
            chosen = order[number * step : (number + 1) * step]
        else:
            chosen = select_next(pool.features, labels, step, by=by, probabilities=probabilities, seed=seed).ids
        labels[chosen] = pool.labels[chosen]
        predict = _fitted(pool.of((labels >= 0).nonzero()[:, 0]), classes)
        right = (predict(test.features).argmax(dim=1) == test.labels).double().mean()
        curve.append((int((labels >= 0).sum()), float(right)))
        probabilities = predict(pool.features) if by else None
    return curve


def _fitted(known: Photos, classes: int) -> Callable[[Tensor], Tensor]:
    """Logistic regression: features `(N, C)` → probabilities `(N, classes)`; classes without a label have none."""
    present, given = known.labels.unique(return_inverse=True)
    ((weight, bias),) = fit_frozen("logistic", known.features, given, len(present), (DEFAULT_PENALTY,))

    def predict(features: Tensor) -> Tensor:
        shares = (features.double() @ weight.T + bias).softmax(dim=1).float()
        return shares.new_zeros(len(features), classes).index_copy_(1, present, shares)

    return predict


def table(curves: dict[str, dict[str, Curve]]) -> str:
    """Labels needed for each accuracy, in Markdown: the first round that reaches it, mean over the seeds."""
    random, queue = (curves[rule] for rule in ("at random", "the queue"))
    reached = [max(share for _, share in curve) for curve in (*random.values(), *queue.values())]
    rows = ["| test accuracy | at random | the queue | times fewer |", "|---|---|---|---|"]
    for percent in range(40, int(100 * min(reached)) + 1, 5):
        ours, theirs = ([needed(curve, percent / 100) for curve in one.values()] for one in (queue, random))
        ratio = statistics.mean(theirs) / statistics.mean(ours)
        rows.append(f"| {percent} % | {_spread(theirs)} | {_spread(ours)} | {ratio:.1f} |")
    return "\n".join(rows)


def needed(curve: Curve, accuracy: float) -> int:
    """Labels after the first round from which on two rounds in a row reach the accuracy; the last round counts too."""
    shares = [share for _, share in curve]
    held = [min(pair) for pair in zip(shares, [*shares[1:], 1.0], strict=True)]
    return next((count for (count, _), share in zip(curve, held, strict=True) if share >= accuracy), curve[-1][0])


def _spread(values: Sequence[int]) -> str:
    return f"{statistics.mean(values):.0f} ({min(values)}–{max(values)})"


def _draw(folder: Path, name: str, curves: dict[str, dict[str, Curve]]) -> None:
    figure, axes = new_plot("labels")
    for rule, by_seed in curves.items():
        counts = [count for count, _ in next(iter(by_seed.values()))]
        shares = 100 * np.array([[share for _, share in curve] for curve in by_seed.values()])  # (seeds, rounds)
        (line,) = axes.plot(counts, shares.mean(0), label=rule)
        axes.fill_between(counts, shares.min(0), shares.max(0), color=line.get_color(), alpha=0.2, linewidth=0)
    axes.set_ylabel("test accuracy, %")
    (folder / name).mkdir(parents=True, exist_ok=True)
    save_plot(figure, folder / name)


def _photos(asked: argparse.Namespace, name: str, folder: Path) -> Photos:
    file = asked.output / f"{name}-{folder.name}-{asked.weights}-{asked.size}.npy"
    if not file.exists():
        found = csml.embed(asked.weights, str(folder), images={"size": asked.size})
        save_array(file, found.features)
        write_json(file.with_suffix(".json"), found.paths, indent=None)
    kinds = [Path(path).parent.name for path in read_json(file.with_suffix(".json"))]
    names = sorted(set(kinds))
    return Photos(F.normalize(torch.from_numpy(np.load(file))), torch.tensor([names.index(kind) for kind in kinds]))


def _split(train: Photos, val: Photos, seed: int, tune: bool) -> tuple[Photos, Photos]:
    order = torch.randperm(len(train.labels), generator=torch.Generator().manual_seed(1000 + seed))
    if tune:
        return train.of(order[len(order) // 5 :]), train.of(order[: len(order) // 5])
    return train.of(order[len(order) // 10 :]), val


def _in_words(curve: Curve) -> str:
    return ", ".join(f"{count}: {share:.1%}" for count, share in curve[:: max(1, len(curve) // 6)])


if __name__ == "__main__":
    main()
