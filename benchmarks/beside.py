"""Training beside another busy process, as on a laptop with a browser open or on a shared server."""

import multiprocessing
from collections.abc import Callable
from functools import partial

import torch

from benchmarks.elsewhere import Elsewhere
from benchmarks.figure import Figure
from benchmarks.timing import alternate
from benchmarks.trainers import epoch_of, trainer

IMAGES, BATCH = 1024, 64


def demo_epoch(*settings: str) -> Callable[[], None]:
    """Sixteen steps of the preset demo, CsMl."""
    return epoch_of(trainer(["--preset", "demo", *settings], IMAGES, size=32, batch=BATCH))


class Busy:
    """A process that keeps one core busy while the block runs."""

    def __enter__(self) -> None:
        self._process = multiprocessing.get_context("spawn").Process(target=_spin, daemon=True)
        self._process.start()

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.join()


def _spin() -> None:
    while True:
        pass


def beside_a_busy_process() -> list[Figure]:
    """Preset demo, CsMl, alone and beside one process that uses one core: threads by default, and as many as cores."""
    threads = torch.get_num_threads()
    adapts, fixed = Elsewhere(demo_epoch), Elsewhere(demo_epoch, "--hardware.threads", str(threads))

    def beside(epoch: Elsewhere) -> None:
        with Busy():
            epoch()

    sides = {
        "alone": adapts,
        "fixed": fixed,
        "beside": partial(beside, adapts),
        "fixed, beside": partial(beside, fixed),
    }
    timing = alternate(sides, rounds=3)
    adapts.close()
    fixed.close()
    rates = {side: IMAGES / timing.median(side) for side in timing.seconds}
    return [
        Figure(
            f"rate beside one busy process over rate alone, preset demo, {threads} threads",
            timing.ratio("alone", "beside"),
            "≥ 0.45",
            f"{rates['beside']:.0f} against {rates['alone']:.0f} images/s; with a fixed number of threads "
            f"{rates['fixed, beside']:.0f} against {rates['fixed']:.0f}",
            timing.facts(),
        ),
        Figure(
            "rate alone over that of a fixed number of threads",
            timing.ratio("fixed", "alone"),
            "≥ 0.97",
            f"{rates['alone']:.0f} against {rates['fixed']:.0f} images/s",
        ),
    ]
