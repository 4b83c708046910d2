"""`python -m benchmarks.quality`: 20-NN against minutes of training, ours and lightly's documented MoCo example.

Same pictures, same network, same machine; an epoch of each in turn, each in its own process. Testing is not counted.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.elsewhere import Elsewhere
from benchmarks.evidence import new_plot, save_plot, timed_epoch, write_results
from benchmarks.settings import pretrain_settings
from benchmarks.trainers import MOCO_V2
from csml.ablations.outcomes import Outcome
from csml.ablations.plans import Variation
from csml.config import PretrainConfig
from csml.data.loading import fabric_for
from csml.data.open import DataSplits, open_data
from csml.distributed.device import keep_freed_memory
from csml.evaluation.features import extract_features
from csml.evaluation.knn import TEMPERATURE, knn_accuracy
from csml.methods.contrast import queue_length
from csml.models.backbones import build_backbone, stage_channels
from csml.runs.directory import RunDirectory
from csml.training.build import peak_learning_rate
from csml.training.loop import TrainingLoop
from csml.training.pretraining import Pretraining
from csml.views.recipe import crop_specs

Epoch = Callable[[], tuple[float, float] | None]
"""Trains for an epoch; seconds of it, and the 20-NN after it. None: there are no more."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0, help="of training, of each side")
    parser.add_argument("--output", type=Path, default=Path("quality"), help="folder for results.json and plot.png")
    asked, settings = parser.parse_known_args()
    words = ["--preset", "cifar10-cpu", *settings]
    sides = {
        "csml, CsMl": Elsewhere(_ours, words),
        "csml, MoCo v2": Elsewhere(_ours, [*words, *MOCO_V2]),
        "lightly, MoCo v2": Elsewhere(_lightly, words),
        "lightly, MoCo v2, our constants": Elsewhere(_lightly_like_ours, words),
    }
    seed = pretrain_settings(words).seed
    curves: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    asked.output.mkdir(parents=True, exist_ok=True)
    going = list(sides)
    while going:
        for name in tuple(going):
            if (result := sides[name]()) is None:  # all of its epochs are over
                going.remove(name)
                continue
            curves[name].append((_spent(curves[name]) + result[0] / 60, result[1]))
            print(f"{name}: {curves[name][-1][0]:.1f} min, 20-NN {result[1]:.1%}", flush=True)
            if _spent(curves[name]) >= asked.minutes:
                going.remove(name)
        _write(asked.output, curves, seed)
    for side in sides.values():
        side.close()


def _spent(curve: list[tuple[float, float]]) -> float:
    return curve[-1][0] if curve else 0.0


def _write(folder: Path, curves: dict[str, list[tuple[float, float]]], seed: int) -> None:
    """results.json as `csml ablate` writes it, so that `csml tables` can show it, with the curves added; plot.png."""
    target = curves["csml, MoCo v2"][-1][1]
    outcomes: list[Outcome] = []
    for name, curve in curves.items():
        measured = {"20-NN at the end": curve[-1][1], "minutes": curve[-1][0]}
        reached = next((at for at, share in curve if share >= target), None)
        if reached is not None:
            measured["minutes to our MoCo v2's end"] = reached
        outcomes.append(Outcome(Variation(name, None, {}, {}, {}), seed, measured, []))
    title = "20-NN against minutes of training, beside lightly"
    write_results(folder, title, "benchmarks.quality", outcomes, curves=curves)
    figure, axes = new_plot("minutes of training")
    for name, curve in curves.items():
        axes.plot([at for at, _ in curve], [100 * share for _, share in curve], ".-", label=name)
    save_plot(figure, folder)


def _ours(words: list[str]) -> Epoch:
    config = pretrain_settings([*words, "--monitor.knn_every", "0", "--monitor.tensorboard", "false"])
    data = open_data(config.data, config.images)
    run = RunDirectory(Path(tempfile.mkdtemp(prefix="csml-quality-")))
    fabric = fabric_for(data.train, config.images.workers, config.hardware)
    task = Pretraining(config, data, run, fabric)
    loop = TrainingLoop(task, config, run, fabric)

    def epoch() -> tuple[float, float] | None:
        if loop.is_done():
            return None
        return timed_epoch(loop), _twenty_nn(task.network.query_encoder.backbone, data, config)

    return epoch


def _lightly(words: list[str]) -> Epoch:
    from benchmarks.with_lightly import DOCUMENTED

    config = pretrain_settings(words)
    return _with_lightly(config, open_data(config.data, config.images), DOCUMENTED)


def _lightly_like_ours(words: list[str]) -> Epoch:
    from benchmarks.with_lightly import Constants

    config = pretrain_settings([*words, *MOCO_V2])
    data, views = open_data(config.data, config.images), config.augmentation
    constants = Constants(
        lr=peak_learning_rate(config.optimizer, config.batch_size),
        momentum=config.optimizer.momentum,
        weight_decay=config.optimizer.weight_decay,
        temperature=config.contrast.temperature,
        follow=config.contrast.momentum,
        queue=queue_length(config.contrast, len(data.train)),
        epochs=config.epochs,
        views={
            "min_scale": crop_specs(config)[0].scale[0],
            "gaussian_blur": views.blur,
            "random_gray_scale": views.gray,
        },
    )
    return _with_lightly(config, data, constants)


def _with_lightly(config: PretrainConfig, data: DataSplits, constants: Any) -> Epoch:
    from benchmarks.with_lightly import epoch_with

    keep_freed_memory()
    if config.hardware.threads:
        torch.set_num_threads(config.hardware.threads)
    torch.manual_seed(config.seed)
    backbone = build_backbone(config.model.backbone, config.model.small_images)
    pixels = _pixels(data)
    train = epoch_with(backbone, stage_channels(backbone)[4], pixels, config.batch_size, 0, constants)
    passed = 0

    def epoch() -> tuple[float, float] | None:
        nonlocal passed
        if passed == constants.epochs:
            return None
        passed += 1
        backbone.train()
        start = time.perf_counter()
        train()
        return time.perf_counter() - start, _twenty_nn(backbone, data, config)

    return epoch


def _pixels(data: DataSplits) -> Any:
    import numpy as np

    return np.stack([np.asarray(data.train.read(id)) for id in range(len(data.train))])


def _twenty_nn(backbone: Any, data: DataSplits, config: PretrainConfig) -> float:
    assert data.labeled is not None and data.val is not None
    fabric = fabric_for(data.train, config.images.workers, config.hardware)
    train, test = (extract_features(backbone, part, config.images, fabric) for part in (data.labeled, data.val))
    return knn_accuracy(train, test, 4, [20], TEMPERATURE, fabric)[0][0]


if __name__ == "__main__":
    main()
