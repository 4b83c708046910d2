"""Views per second on one core, decoding included, against lightly's MoCoV2Transform."""

import os
import tempfile
from pathlib import Path

import numpy as np
import torch
from lightly.transforms import MoCoV2Transform
from PIL import Image

from benchmarks.figure import Figure
from benchmarks.settings import pretrain_settings
from benchmarks.timing import alternate
from benchmarks.trainers import MOCO_V2
from csml.config import ImagesConfig, PretrainConfig
from csml.data.images import Images
from csml.data.loading import view_batches
from csml.data.open import open_data
from csml.data.sampling import generator_for, plan_batch
from csml.views import crop_specs, make_views

PHOTOS = Path(os.environ.get("CSML_BENCH_PHOTOS", "no photos"))
"""A folder of real photos; without it, drawings saved as JPEG."""


def views_per_core() -> list[Figure]:
    """Two views per picture, all of MoCo v2's augmentation, one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [_small_pictures(), _photos()]
    finally:
        torch.set_num_threads(threads)


def _small_pictures() -> Figure:
    images = open_data("synthetic", ImagesConfig(size=32, synthetic_train=1024)).train
    pil = [images.read(i) for i in range(len(images))]
    transform = MoCoV2Transform(input_size=32)
    config = pretrain_settings([*MOCO_V2, "--images.size", "32"])
    sides = {
        "ours": lambda: _our_views(images, config, 256),
        "lightly": lambda: [transform(picture) for picture in pil],
    }
    return _figure("views/s per core at 32 px, against lightly", sides, 2 * len(images), "≥ 6")


def _photos() -> Figure:
    with tempfile.TemporaryDirectory() as folder:
        files = _jpegs(Path(folder))
        images = open_data(folder, ImagesConfig(labels="none")).train
        transform = MoCoV2Transform(input_size=224)
        config = pretrain_settings(MOCO_V2)

        def theirs() -> None:
            for file in files:
                with Image.open(file) as picture:
                    transform(picture.convert("RGB"))

        sides = {"ours": lambda: _our_views(images, config, 64), "lightly": theirs}
        return _figure("views/s per core at 224 px from JPEG, against lightly", sides, 2 * len(files), "≥ 1.5")


def _figure(name: str, sides: dict, views: int, target: str) -> Figure:
    timing = alternate(sides, rounds=7)
    rates = {side: views / timing.median(side) for side in sides}
    detail = f"{rates['ours']:,.0f} against {rates['lightly']:,.0f} views/s"
    return Figure(name, timing.ratio("lightly", "ours"), target, detail, timing.facts())


def _our_views(images: Images, config: PretrainConfig, batch: int) -> None:
    specs = crop_specs(config)
    ids = np.arange(len(images))
    plans = (
        plan_batch(ids[i : i + batch], None, len(specs), generator_for(0, i)) for i in range(0, len(images), batch)
    )
    for cut in view_batches(images, plans, specs, workers=0, pin=False):
        none = torch.empty(len(cut.anchors), 0, dtype=torch.long)
        make_views(
            cut.crops, cut.anchors, cut.neighbors, none, config.views, config.augmentation,
            generator_for(1), torch.channels_last,
        )  # fmt: skip


def _jpegs(folder: Path, count: int = 128) -> list[Path]:
    found = sorted(PHOTOS.rglob("*.JPEG")) + sorted(PHOTOS.rglob("*.jpg"))
    if not found:
        drawn = open_data("synthetic", ImagesConfig(size=224, synthetic_train=count)).train
        for i in range(count):
            drawn.read(i).save(folder / f"{i:03d}.jpg", quality=90)
    for i, file in enumerate(found[:: max(1, len(found) // count)][:count]):
        (folder / f"{i:03d}.jpg").write_bytes(file.read_bytes())
    return sorted(folder.iterdir())
