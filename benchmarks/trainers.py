"""Runs of ours whose epochs can be timed: the loop that `csml pretrain` runs, on pictures held in memory."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.settings import pretrain_settings
from csml.api.session import device_for
from csml.config import PretrainConfig
from csml.data.images import ArrayImages, Images
from csml.data.open import DataSplits
from csml.runs.directory import RunDirectory
from csml.runs.interruption import StopSignals
from csml.search.omega import Omega
from csml.training.build import build_method
from csml.training.loop import TrainingLoop
from csml.training.pretraining import Pretraining
from csml.weights import load_backbone, save_backbone

MOCO_V2 = ["--views.cross_sample", "false", "--views.mix", "none", "--model.stages", "[4]"]
CROSS_SAMPLE = ["--views.mix", "none", "--model.stages", "[4]"]
MIXED = ["--model.stages", "[4]"]
CSML: list[str] = []


def pictures(count: int, size: int) -> ArrayImages:
    """Noise: what is on the pictures does not change the cost of anything here."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (count, size, size, 3), dtype=np.uint8)
    return ArrayImages(pixels, np.full(count, -1), (), "noise")


def trainer(settings: list[str], images: int, size: int, batch: int) -> TrainingLoop:
    """A run with neighbours, as in the middle of training."""
    config = pretrain_settings(
        [
            "--images.size", str(size), "--images.eval_crop", "1", "--batch_size", str(batch),
            "--contrast.queue_length", "4096", "--monitor.tensorboard", "false", *settings,
        ]
    )  # fmt: skip
    return trainer_on(pictures(images, size), config)


def trainer_on(images: Images, config: PretrainConfig) -> TrainingLoop:
    """A run with neighbours on given images."""
    data = DataSplits(images, None, None)
    run = RunDirectory(Path(tempfile.mkdtemp(prefix="csml-bench-")))
    fabric = device_for(data.train, config)
    if config.model.weights:
        save_backbone(run.start, load_backbone(config.model.weights), config.model, config.images)
    task = Pretraining(config, data, run, fabric)
    if config.views.cross_sample:
        ids = np.random.default_rng(1).integers(0, len(images), (len(images), 10))
        task.search.found = Omega(ids, np.ones(ids.shape, np.float32), 0)
    return TrainingLoop(task, config, run, fabric)


def epoch_of(loop: TrainingLoop) -> Callable[[], None]:
    """One epoch by the run's own loop; whatever follows an epoch is left out."""

    def epoch() -> None:
        loop.step, loop.seconds = 0, 0.0
        with StopSignals() as signals:
            loop.train_epoch(signals)

    return epoch


def bare_passes(loop: TrainingLoop, batch: int, size: int, queries: int, keys: int) -> Callable[[], None]:
    """The networks alone, with plain BatchNorm: `queries` × forward and backward, `keys` × forward, for one batch."""
    config = loop.config
    assert isinstance(config, PretrainConfig)
    plain = replace(config, contrast=replace(config.contrast, bn_splits=1))
    method = build_method(plain, len(loop.task.images)).to(memory_format=torch.channels_last)
    images = torch.randn(batch, 3, size, size).contiguous(memory_format=torch.channels_last)

    def step() -> None:
        method.query_encoder.zero_grad(set_to_none=True)
        with loop.fabric.autocast():
            for _ in range(keys):
                with torch.no_grad():
                    method.encoder("key")(images)
            # All forwards before all backwards, as the loss of several queries needs it.
            total = torch.stack(
                [e.float().sum() for _ in range(queries) for e in method.query_encoder(images).values()]
            ).sum()
        total.backward()

    return step
