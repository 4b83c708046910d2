"""Devices and precision, through lightning-fabric."""

import ctypes
import os
import platform
import sys
import warnings

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning_fabric.strategies.ddp import DDPStrategy

from csml.config.schema import HardwareConfig
from csml.data.images import Images
from csml.data.loading import worker_count
from csml.errors import CsmlError, reason
from csml.training.launch import PATIENCE, join_world
from csml.world import cores_each

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
"""glibc's numbers of the two settings (malloc.h)."""


def build_fabric(config: HardwareConfig, images: Images, workers: int | None) -> Fabric:
    """The device to run on, with its precision settled.

    Where the CPU trains, its threads leave a core to each worker that decodes `images`: a busy worker beside as many
    threads as cores makes a step several times slower.
    """
    join_world(config)
    accelerator = config.accelerator
    if accelerator == "auto":
        accelerator = "cuda" if torch.cuda.is_available() else "cpu"
    if accelerator == "cpu":
        keep_freed_memory()
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    elif accelerator == "cpu" and (busy := worker_count(images, workers, accelerator)):
        torch.set_num_threads(max(1, cores_each() - busy))
    precision = config.precision
    if precision == "auto":
        precision = "bf16-mixed" if _computes_bf16(accelerator) else "32-true"
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
                plugins=TorchElasticEnvironment(),  # whoever started us: join_world has settled the names
            )  # fmt: skip
            fabric.launch()
            return fabric
        except (RuntimeError, ValueError, TypeError) as error:
            why = reason(error)
            raise CsmlError(f"hardware.accelerator: {accelerator} cannot be used here ({why}); try cpu") from error


def keep_freed_memory() -> None:
    """Let glibc reuse large blocks instead of returning them: mapping each activation anew costs a tenth of a step."""
    if sys.platform == "linux" and platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_MAX, 0)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def _computes_bf16(accelerator: str) -> bool:
    """Natively: emulated bf16 is slower than float32."""
    if accelerator == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if accelerator == "cpu":
        return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
    return False


def memory_format(config: HardwareConfig) -> torch.memory_format:
    return torch.channels_last if config.channels_last else torch.contiguous_format
