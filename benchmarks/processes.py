"""Two processes against one, and what they send each other against the formulas of docs/scaling.md."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.elsewhere import Elsewhere
from benchmarks.figure import Figure
from benchmarks.timing import alternate
from benchmarks.trainers import CSML, MOCO_V2, epoch_of, trainer

BATCH, SIZE, IMAGES = 256, 32, 2048


def two_against_one() -> list[Figure]:
    """Images per second of the machine's two cores, either way."""
    figures = []
    for network, words, images in (
        ("tiny", ["--model.backbone", "tiny"], IMAGES),
        ("ResNet-18, CIFAR stem", ["--model.backbone", "resnet18", "--model.small_images", "true"], BATCH),
        ("ResNet-18, ImageNet stem", ["--model.backbone", "resnet18"], IMAGES // 2),
    ):
        for method, settings in (("MoCo v2", MOCO_V2), ("CsMl", CSML)):
            one, two = Elsewhere(_epoch, [*words, *settings], images, 0, 1, 0), _Pair([*words, *settings], images)
            timing = alternate({"one": one, "two": two}, rounds=4)
            one.close()
            two.close()
            rates = {side: images / timing.median(side) for side in timing.seconds}
            figures.append(
                Figure(
                    f"two processes over one with two threads, {network}, {method}",
                    timing.ratio("one", "two"),
                    "≥ 0.9",
                    f"{rates['two']:.0f} against {rates['one']:.0f} images/s",
                    timing.facts(),
                )
            )
    return figures


def bytes_and_memory() -> list[Figure]:
    """The formulas of docs/scaling.md at a small size."""
    figures = []
    for method, settings, keys, levels in (("MoCo v2", MOCO_V2, 1, 1), ("CsMl", CSML, 2, 3)):
        words = ["--model.backbone", "tiny", *settings]
        here = trainer(words, 2 * BATCH, SIZE, BATCH)
        weights = sum(p.numel() for p in here.task.network.parameters() if p.requires_grad)
        pair = _Pair(words, IMAGES)
        pair()
        before = _loopback()
        pair()
        steps = IMAGES // BATCH
        sent = (_loopback() - before) / steps / 2  # by each of the two
        gradients = 4 * weights  # 2 (P − 1) / P · 4 W
        shuffled = keys * (BATCH / 2) * 3 * SIZE**2 * 4 / 2  # a share, of which half is the other's
        embeddings = keys * levels * (BATCH / 2) * 128 * 4
        expected = gradients + shuffled + embeddings
        pair.close()
        figures.append(
            Figure(
                f"bytes a process sends per step over the formula, tiny, {method}",
                sent / expected,
                "",
                f"{sent / 1e6:.2f} against {expected / 1e6:.2f} MB: gradients {gradients / 1e6:.2f}, shuffled images "
                f"{shuffled / 1e6:.2f}, keys {embeddings / 1e6:.2f}",
            )
        )
    return figures


class _Pair:
    """Two processes that take their turn together."""

    def __init__(self, words: list[str], images: int) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.sides = [Elsewhere(_epoch, words, images, rank, 2, port, await_it=False) for rank in (0, 1)]
        for side in self.sides:
            side.wait()

    def __call__(self) -> None:
        for side in self.sides:
            side.begin()
        for side in self.sides:
            side.wait()

    def close(self) -> None:
        for side in self.sides:
            side.close()


def _epoch(words: list[str], images: int, rank: int, processes: int, port: int) -> Callable[[], None]:
    if processes > 1:
        here = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes}
        os.environ |= {name: str(value) for name, value in here.items()}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    threads = ["--hardware.threads", str(max(1, torch.get_num_threads() // processes))]
    return epoch_of(trainer([*words, *threads], images, SIZE, BATCH))


def _loopback() -> int:
    """Bytes that have gone over the loopback device."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        if line.strip().startswith("lo:"):
            return int(line.split()[1])
    raise RuntimeError("there is no loopback device")
