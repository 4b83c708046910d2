"""Settings of all tests, and the small data and runs several of them need."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings
from PIL import Image

settings.register_profile("csml", deadline=None, max_examples=40, derandomize=True)
settings.load_profile("csml")


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nothing is read from or left in the user's cache."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["CSML_CACHE"] = str(folder)
    return folder


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


SMALL_RUN = [
    "--preset", "demo", "--images.synthetic_train", "300", "--images.synthetic_val", "100", "--epochs", "3",
    "--batch_size", "64", "--contrast.queue_length", "128", "--neighbors.warmup_epochs", "1",
    "--neighbors.refresh_every", "1", "--monitor.knn_every", "1", "--monitor.tensorboard", "false",
    "--hardware.threads", "1",
]  # fmt: skip
"""A CsMl run of a few seconds in which neighbours are searched twice."""


def csml(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does."""
    command = [sys.executable, "-m", "csml", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, **options)  # type: ignore[call-overload]


def noise_photos(folder: Path, count: int, suffix: str = ".png") -> None:
    """Readable pictures with nothing on them, 00.png, 01.png, …"""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for i in range(count):
        picture = Image.fromarray(rng.integers(0, 256, (40, 50, 3), dtype=np.uint8))
        picture.save(folder / f"{i:02d}{suffix}")


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    """A finished small CsMl run."""
    out = tmp_path_factory.mktemp("runs") / "small"
    done = csml("pretrain", *SMALL_RUN, "--out", str(out))
    assert done.returncode == 0, done.stderr
    return out
