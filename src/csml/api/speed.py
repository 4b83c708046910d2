"""A speed test of seconds: reading images, and training steps."""

import io
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image

from csml.config import HardwareConfig
from csml.data.decode import Picture
from csml.distributed.device import accelerator_of, memory_format
from csml.models.backbones import build_backbone

_JPEG_SIDE, _SIDE, _BATCH = 500, 128, 8


@dataclass(frozen=True)
class Speed:
    """Speed of the machine under its current load."""

    decoded: float
    """JPEG files of 500 × 500 pixels per second, by one process"""
    trained: float
    """images of 128 × 128 pixels per second, forward and backward through a ResNet-18 in float32"""
    device: str
    finite: bool
    """whether the gradients were finite numbers"""

    def lines(self) -> dict[str, str]:
        return {
            "decoding": f"{self.decoded:.0f} JPEG files of {_JPEG_SIDE}×{_JPEG_SIDE} pixels per second and process",
            "training": f"{self.trained:.1f} images of {_SIDE}×{_SIDE} pixels per second, ResNet-18, {self.device}",
        }


def measure_speed(seconds: float) -> Speed:
    """Half of the seconds for each of the two; other running programs slow both down."""
    accelerator = accelerator_of(HardwareConfig())
    device = torch.device(accelerator)
    network = build_backbone("resnet18").to(device).to(memory_format=memory_format(HardwareConfig()))
    images = torch.rand(_BATCH, 3, _SIDE, _SIDE, device=device)
    noise = np.random.default_rng(0).integers(0, 256, (_JPEG_SIDE // 10, _JPEG_SIDE // 10, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).resize((_JPEG_SIDE, _JPEG_SIDE)).save(file, "jpeg", quality=90)

    def decode() -> None:
        file.seek(0)
        Picture(io.BytesIO(file.getvalue())).rgb()

    def train() -> None:
        network.zero_grad()
        network(images).square().mean().backward()
        if device.type == "cuda":
            torch.cuda.synchronize()

    train()  # warm-up
    trained = _BATCH * _per_second(train, seconds / 2)
    finite = all(bool(torch.isfinite(p.grad).all()) for p in network.parameters() if p.grad is not None)
    return Speed(_per_second(decode, seconds / 2), trained, accelerator, finite)


def _per_second(work: Callable[[], None], seconds: float) -> float:
    start, done = time.perf_counter(), 0
    while not done or time.perf_counter() - start < seconds:
        work()
        done += 1
    return done / (time.perf_counter() - start)
