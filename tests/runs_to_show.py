"""Small runs on a folder of drawings, for the tests of the report and of the explorer."""

from pathlib import Path

import numpy as np
from PIL import Image

from conftest import csml
from csml.synthetic import CLASS_NAMES, draw_scene

NASTY = "<img src=x onerror=alert(1)>.png"
"""The first file is called so."""
_EVERY = [
    "--epochs", "3", "--batch_size", "32", "--contrast.queue_length", "32", "--monitor.knn_every", "1",
    "--monitor.tensorboard", "false", "--hardware.threads", "1", "--images.workers", "0",
]  # fmt: skip
_NEIGHBORS = [
    "--neighbors.warmup_epochs", "1", "--neighbors.refresh_every", "1", "--neighbors.k", "5", "--neighbors.keep", "1",
]  # fmt: skip


def make_photos(root: Path) -> Path:
    """60 drawings of five classes to learn from, 20 to test on."""
    for part, count in (("train", 12), ("val", 4)):
        for label, name in enumerate(CLASS_NAMES[:5]):
            folder = root / part / name
            folder.mkdir(parents=True)
            for number in range(count):
                scene = draw_scene(32, np.array([label]), np.random.default_rng([label, number, len(part)]))
                Image.fromarray(scene.image).save(
                    folder / (NASTY if (label, number) == (0, 0) else f"{number:02d}.png")
                )
    return root


def make_flat_run(root: Path) -> Path:
    """`run/`, trained for an epoch on `photos/`: 60 drawings of three classes in one folder, without labels.

    The class is in the file name: 00-arrow.png.
    """
    photos = root / "photos"
    photos.mkdir(parents=True)
    for number in range(60):
        scene = draw_scene(32, np.array([number % 3]), np.random.default_rng([7, number]))
        Image.fromarray(scene.image).save(photos / f"{number:02d}-{CLASS_NAMES[number % 3]}.png")
    words = ["--preset", "demo", *_EVERY, "--epochs", "1", "--neighbors.k", "0", "--monitor.knn_every", "0"]
    done = csml("pretrain", *words, "--data", str(photos), "--out", str(root / "run"))
    assert done.returncode == 0, done.stderr
    return root


def make_runs(root: Path) -> Path:
    """`moco-v2/` and `csml/`, judged, and `tuned/`, fine-tuned from the second."""
    data = ["--data", str(make_photos(root / "photos"))]
    done = csml("pretrain", "--preset", "demo-moco-v2", *_EVERY, *data, "--out", str(root / "moco-v2"))
    assert done.returncode == 0, done.stderr
    small = [*_NEIGHBORS, "--views.small_crops", "2"]
    done = csml("pretrain", "--preset", "demo", *_EVERY, *small, *data, "--out", str(root / "csml"))
    assert done.returncode == 0, done.stderr
    for name in ("moco-v2", "csml"):
        assert csml("knn", str(root / name), "--k", "[5]").returncode == 0
    short = ["--augment", "false", "--epochs", "2", "--milestones", "[1]", "--stages", "[3, 4]"]
    assert csml("linear", str(root / "csml"), *short).returncode == 0
    words = ["--epochs", "1", "--batch_size", "20", "--fraction", "0.5", "--monitor.tensorboard", "false"]
    done = csml("finetune", str(root / "csml"), "--preset", "demo", *words, "--out", str(root / "tuned"))
    assert done.returncode == 0, done.stderr
    return root
