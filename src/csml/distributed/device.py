"""Device and precision, set up with lightning-fabric."""

import ctypes
import os
import platform
import sys
import warnings

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning_fabric.strategies.ddp import DDPStrategy

from csml.config import HardwareConfig
from csml.distributed.launch import PATIENCE, join_world
from csml.distributed.world import cores_each
from csml.errors import CsmlError, reason

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
"""glibc's codes for these two settings (malloc.h)."""


def accelerator_of(config: HardwareConfig) -> str:
    """The accelerator to use; `auto` means `cuda` if there is one, else `cpu`."""
    if config.accelerator != "auto":
        return config.accelerator
    return "cuda" if torch.cuda.is_available() else "cpu"


def build_fabric(config: HardwareConfig, decoders: int = 0) -> Fabric:
    """Join the other processes and set up device, precision and CPU threads.

    Args:
        config: the hardware settings.
        decoders: worker processes that will decode images. When training runs on the CPU, one core is left free for
            each of them: with as many threads as cores, a busy worker makes a step several times slower.
    """
    join_world(config)
    accelerator = accelerator_of(config)
    if accelerator == "cpu":
        keep_freed_memory()
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    elif decoders:
        use_cores(config, accelerator, decoders)
    precision = config.precision
    if precision == "auto":
        precision = "bf16-mixed" if computes_bf16(accelerator) else "32-true"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*GPU available but not used.*")
        try:
            if os.environ.get("WORLD_SIZE", "1") == "1":
                return Fabric(accelerator=accelerator, devices=1, precision=precision)
            strategy = DDPStrategy(broadcast_buffers=False, gradient_as_bucket_view=True, timeout=PATIENCE)
            local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
            nodes = max(1, int(os.environ["WORLD_SIZE"]) // local)
            fabric = Fabric(
                accelerator=accelerator, strategy=strategy, devices=local, num_nodes=nodes, precision=precision,
                plugins=TorchElasticEnvironment(),  # join_world has set its variables for any launcher
            )  # fmt: skip
            fabric.launch()
            return fabric
        except (RuntimeError, ValueError, TypeError) as error:
            why = reason(error)
            raise CsmlError(f"hardware.accelerator: {accelerator} cannot be used here ({why}); try cpu") from error


def use_cores(config: HardwareConfig, accelerator: str, decoders: int) -> None:
    """Train on a CPU with all cores except those of the decoding workers; at most OMP_NUM_THREADS."""
    if config.threads is None and accelerator == "cpu":
        allowed = os.environ.get("OMP_NUM_THREADS", "")
        most = int(allowed) if allowed.isdecimal() and int(allowed) else cores_each()
        torch.set_num_threads(max(1, min(most, cores_each() - decoders)))


def keep_freed_memory() -> None:
    """Make glibc reuse large blocks: returning and remapping them for each activation costs a tenth of a step."""
    if sys.platform == "linux" and platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_MAX, 0)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def computes_bf16(accelerator: str) -> bool:
    """Whether the device computes in bf16 natively; emulated bf16 is slower than float32."""
    if accelerator == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if accelerator == "cpu":
        return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
    return False


def memory_format(config: HardwareConfig) -> torch.memory_format:
    """The memory layout of images and feature maps."""
    return torch.contiguous_format if config.channels_last is False else torch.channels_last
