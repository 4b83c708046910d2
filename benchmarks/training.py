"""Whole epochs of our loop: against lightly, against the bare networks, and part against part."""

import torch

from benchmarks.elsewhere import Elsewhere
from benchmarks.figure import Figure
from benchmarks.timing import alternate
from benchmarks.trainers import CROSS_SAMPLE, CSML, MIXED, MOCO_V2, bare_passes, epoch_of, pictures, trainer

RESNET18 = ["--model.backbone", "resnet18"]
CIFAR_STEM = ["--model.small_images", "true"]
BATCH, SIZE = 256, 32


def against_lightly() -> list[Figure]:
    """MoCo v2, ResNet-18, 32 px, batch 256, queue 4096; lightly with the number of workers it is fastest with."""
    from benchmarks.with_lightly import lightly_epoch

    figures = []
    for stem, more, images, target in (("ImageNet", [], 2048, "≥ 2.5"), ("CIFAR", CIFAR_STEM, 512, "≥ 2.0")):
        pixels = pictures(images, SIZE).pixels
        theirs = {n: Elsewhere(lightly_epoch, pixels, BATCH, stem == "CIFAR", n) for n in (0, 1, 2, 8)}
        tried = alternate({str(n): epoch for n, epoch in theirs.items()}, rounds=1, warm_up=False)
        fastest = min(theirs, key=lambda n: tried.median(str(n)))
        ours, compiled = (
            trainer([*RESNET18, *more, *MOCO_V2, "--hardware.compile", compile], images, SIZE, BATCH)
            for compile in ("false", "true")
        )
        step, steps = bare_passes(ours, BATCH, SIZE, queries=1, keys=1), images // BATCH
        timing = alternate(
            {
                "ours": epoch_of(ours),
                "lightly": theirs[fastest],
                "bare": lambda: [step() for _ in range(steps)],  # noqa: B023
                "compiled": epoch_of(compiled),
            },
            rounds=5,
        )
        for side in theirs.values():
            side.close()
        torch.compiler.reset()
        rates = {side: images / timing.median(side) for side in timing.seconds}
        facts = {**timing.facts(), "lightly by workers": tried.seconds}
        figures += [
            Figure(
                f"MoCo v2 end to end, {stem} stem, against lightly",
                timing.ratio("lightly", "ours"),
                target,
                f"{rates['ours']:.0f} against {rates['lightly']:.0f} images/s ({fastest} workers); the bare networks, "
                f"with nothing around them: {rates['bare']:.0f}, {timing.ratio('lightly', 'bare'):.2f}×",
                facts,
            ),
            Figure(
                f"the same, `--hardware.compile true`, {stem} stem",
                timing.ratio("lightly", "compiled"),
                "",
                f"{rates['compiled']:.0f} against {rates['lightly']:.0f} images/s",
                facts,
            ),
        ]
    return figures


def against_bare_networks() -> list[Figure]:
    """The whole CsMl step over the forward and backward passes it consists of."""
    figures = []
    for name, more, steps, target in (
        ("CIFAR stem", CIFAR_STEM, 1, "≤ 1.10"),
        ("ImageNet stem", [], 4, ""),
        ("CIFAR stem, compiled", [*CIFAR_STEM, "--hardware.compile", "true"], 1, ""),
        ("ImageNet stem, compiled", ["--hardware.compile", "true"], 4, ""),
    ):
        training = trainer([*RESNET18, *more, *CSML], steps * BATCH, SIZE, BATCH)
        step = bare_passes(training, BATCH, SIZE, queries=3, keys=2)
        timing = alternate({"step": epoch_of(training), "bare": lambda: [step() for _ in range(steps)]}, rounds=4)  # noqa: B023
        per_step = {side: timing.median(side) / steps for side in timing.seconds}
        figures.append(
            Figure(
                f"CsMl step over its bare network passes, {name}",
                timing.ratio("step", "bare"),
                target,
                f"{per_step['step']:.2f} against {per_step['bare']:.2f} s per step of {BATCH}",
                timing.facts(),
            )
        )
        torch.compiler.reset()
    return figures


def part_by_part() -> list[Figure]:
    """What an epoch costs when views are added; ResNet-18, ImageNet stem, 32 px."""
    images = 4 * BATCH
    sides = {
        name: epoch_of(trainer([*RESNET18, *settings], images, SIZE, BATCH))
        for name, settings in (("MoCo v2", MOCO_V2), ("q_a+q_p", CROSS_SAMPLE), ("+ q̂", MIXED))
    }
    timing = alternate(sides, rounds=7)
    seconds, facts = timing.medians(), timing.facts()
    return [
        Figure(
            "epoch of q_a+q_p over two of MoCo v2",
            timing.ratio("q_a+q_p", "MoCo v2") / 2,
            "≤ 1.03",
            f"{seconds['q_a+q_p']:.2f} against 2 × {seconds['MoCo v2']:.2f} s",
            facts,
        ),
        Figure(
            "epoch with q̂ over one without",
            timing.ratio("+ q̂", "q_a+q_p"),
            "≤ 1.40",
            f"{seconds['+ q̂']:.2f} against {seconds['q_a+q_p']:.2f} s (its passes alone: 1.375)",
            facts,
        ),
    ]


def levels() -> list[Figure]:
    """ResNet-50 at 224 px with and without the companion heads at stages 2 and 3."""
    batch = 8
    resnet50 = ["--model.backbone", "resnet50"]
    sides = {
        "2, 3, 4": epoch_of(trainer([*resnet50, *CSML], 2 * batch, 224, batch)),
        "4": epoch_of(trainer([*resnet50, *MIXED], 2 * batch, 224, batch)),
    }
    timing = alternate(sides, rounds=5)
    return [
        Figure(
            "epoch with levels 2 and 3 over one without, ResNet-50, 224 px",
            timing.ratio("2, 3, 4", "4"),
            "≤ 1.12",
            f"{timing.median('2, 3, 4'):.2f} against {timing.median('4'):.2f} s per two steps of {batch}",
            timing.facts(),
        )
    ]


def neighbors_share() -> list[Figure]:
    """A refresh every five epochs of 50 000 images, ResNet-18, CIFAR stem: the pass at its measured rate, and a search
    of that many features."""
    from benchmarks.search import hard_features
    from csml.evaluation.features import extract_features
    from csml.search.nearest_neighbors import top_k

    images, some = 50_000, 2 * BATCH
    training = trainer([*RESNET18, *CIFAR_STEM, *CSML], some, SIZE, BATCH)
    backbone = training.task.network.query_encoder.backbone
    features = hard_features(images, 512)
    timing = alternate(
        {
            "epoch": epoch_of(training),
            "pass": lambda: extract_features(
                backbone, training.task.images, training.config.images, training.fabric, unit_halves=True
            ),
            "search": lambda: top_k(features, 10, recall=training.config.neighbors.recall),
        },
        rounds=3,
    )
    epoch, once = (timing.median(side) * images / some for side in ("epoch", "pass"))
    refresh = once + timing.median("search")
    return [
        Figure(
            "share of the time spent on neighbours, refresh every 5 epochs",
            refresh / (refresh + 5 * epoch),
            "≤ 0.02",
            f"{once:.0f} s pass + {timing.median('search'):.1f} s search against 5 epochs of {epoch:.0f} s",
            timing.facts(),
        )
    ]
