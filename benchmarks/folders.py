"""Training from a folder of JPEG files: decoded in every epoch, decoded once (`images.cache`), and held in memory."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.elsewhere import Elsewhere
from benchmarks.figure import Figure
from benchmarks.settings import pretrain_settings
from benchmarks.timing import alternate
from benchmarks.trainers import epoch_of, trainer_on
from csml.data.folders import folder_images
from csml.data.images import ArrayImages

COUNT, HEIGHT, WIDTH = 512, 375, 500


def decoded_against_files() -> list[Figure]:
    """Epochs of the presets that learn photos on a CPU; all sides see the same pictures."""
    with tempfile.TemporaryDirectory(prefix="csml-bench-") as folder:
        jpegs(Path(folder))
        return [figure for preset in ("photos-scratch", "photos") for figure in _figures(preset, folder)]


def _figures(preset: str, folder: str) -> list[Figure]:
    sides = {side: Elsewhere(epoch, preset, folder, side) for side in ("off", "on", "memory")}
    timing = alternate(dict(sides), rounds=3)  # the round that warms up fills the cache
    for side in sides.values():
        side.close()
    rates = {side: COUNT / timing.median(side) for side in sides}
    told = (
        f"{rates['on']:.0f} images/s; decoded in every epoch {rates['off']:.0f}, from memory {rates['memory']:.0f}; "
        f"files of {WIDTH}×{HEIGHT} pixels"
    )
    return [
        Figure(
            f"preset {preset} from JPEG files, epochs ≥ 2, over `images.cache off`",
            timing.ratio("off", "on"),
            "≥ 1.5",
            told,
            timing.facts(),
        ),
        Figure(f"preset {preset}, the same over memory", timing.ratio("memory", "on"), "≥ 0.95", told),
    ]


def epoch(preset: str, folder: str, side: str) -> Callable[[], None]:
    """An epoch from files with `images.cache` on or off, or from an array of the size that the cache holds."""
    words = ["--preset", preset, "--data", folder, "--images.cache", "off" if side == "off" else "on"]
    config = pretrain_settings([*words, "--monitor.tensorboard", "false"])
    images = folder_images(Path(folder), config.images, classes=None)
    if side != "memory":
        return epoch_of(trainer_on(images, config))
    assert images.decoded is not None
    height, width = images.decoded.side, images.decoded.side * WIDTH // HEIGHT
    pixels = np.stack([np.asarray(images.read(id).resize((width, height))) for id in range(len(images))])
    return epoch_of(trainer_on(ArrayImages(pixels, images.labels, (), "memory"), config))


def jpegs(folder: Path) -> None:
    """Pictures with as much detail as photos: about 40 kB each."""
    rng = np.random.default_rng(0)
    for number in range(COUNT):
        noise = Image.fromarray(rng.integers(0, 256, (HEIGHT // 5, WIDTH // 5, 3), dtype=np.uint8))
        noise.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC).save(folder / f"{number:04d}.jpg", quality=85)
