"""Runs of ours whose epochs can be timed: the loop that `csml pretrain` runs, on pictures held in memory."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from csml.cli.pretrain import parse
from csml.data.images import ArrayImages
from csml.data.open import DataSplits
from csml.neighbors.omega import Omega
from csml.training.build import build_method
from csml.training.interruption import StopSignals
from csml.training.pretraining import Pretraining
from csml.training.run_directory import RunDirectory

MOCO_V2 = ["--views.cross_sample", "false", "--views.mix", "none", "--model.stages", "[4]"]
CROSS_SAMPLE = ["--views.mix", "none", "--model.stages", "[4]"]
MIXED = ["--model.stages", "[4]"]
CSML: list[str] = []


def pictures(count: int, size: int) -> ArrayImages:
    """Noise: what is on the pictures does not change the cost of anything here."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (count, size, size, 3), dtype=np.uint8)
    return ArrayImages(pixels, np.full(count, -1), (), "noise")


def trainer(settings: list[str], images: int, size: int, batch: int) -> Pretraining:
    """A run with neighbours, as in the middle of training."""
    config, _ = parse(
        [
            "--images.size", str(size), "--images.eval_crop", "1", "--batch_size", str(batch),
            "--contrast.queue_length", "4096", "--monitor.tensorboard", "false", *settings,
        ]
    )  # fmt: skip
    data = DataSplits(pictures(images, size), None, None)
    training = Pretraining(config, data, RunDirectory(Path(tempfile.mkdtemp(prefix="csml-bench-"))))
    if config.views.cross_sample:
        ids = np.random.default_rng(1).integers(0, images, (images, 10))
        training.neighbors = Omega(ids, np.ones(ids.shape, np.float32), 0)
    return training


def epoch_of(training: Pretraining) -> Callable[[], None]:
    """One epoch by the run's own loop; whatever follows an epoch is left out."""

    def epoch() -> None:
        training.step, training.seconds = 0, 0.0
        with StopSignals() as signals:
            training.train_epoch(signals)

    return epoch


def bare_passes(training: Pretraining, batch: int, size: int, queries: int, keys: int) -> Callable[[], None]:
    """The networks alone, with plain BatchNorm: `queries` × forward and backward, `keys` × forward, for one batch."""
    plain = replace(training.config, contrast=replace(training.config.contrast, bn_splits=1))
    method = build_method(plain, len(training.data.train)).to(memory_format=torch.channels_last)
    images = torch.randn(batch, 3, size, size).contiguous(memory_format=torch.channels_last)

    def step() -> None:
        method.query_encoder.zero_grad(set_to_none=True)
        with training.fabric.autocast():
            for _ in range(keys):
                with torch.no_grad():
                    method.key_encoder(images)
            # All forwards before all backwards, as the loss of several queries needs it.
            total = torch.stack(
                [e.float().sum() for _ in range(queries) for e in method.query_encoder(images).values()]
            ).sum()
        total.backward()

    return step
