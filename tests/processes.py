"""Processes for tests, forked from a server that has imported csml once; and several of them as one world."""

import multiprocessing
import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from csml.distributed.launch import leave_world
from csml.distributed.world import World

T = TypeVar("T")

FORKED = multiprocessing.get_context("forkserver")
PRELOADED = [
    "unsynced", "csml.cli.show", "csml.api.pretraining", "csml.methods.contrast", "csml.training.pretraining",
    "csml.training.detection", "hypothesis", "pytest",
]  # fmt: skip
FORKED.set_forkserver_preload(PRELOADED)


def together(size: int, function: Callable[..., T], *arguments: Any) -> list[T]:
    """What `function(world, *arguments)` returns in each of `size` processes."""
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(size, FORKED) as pool:
        meeting = str(Path(folder) / "meeting")
        running = [pool.submit(_inside, World(rank, size), meeting, function, arguments) for rank in range(size)]
        return [process.result(timeout=120) for process in running]


def sum_gradients(world: World, network: nn.Module) -> None:
    """Replace the gradients of each process by their sum over all."""
    for parameter in network.parameters():
        if parameter.grad is not None:
            parameter.grad = world.all_reduce_sum(parameter.grad)


def _inside(world: World, meeting: str, function: Callable[..., T], arguments: tuple[Any, ...]) -> T:
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(world.rank), "LOCAL_RANK": str(world.rank)}  # as torchrun would
    os.environ |= {"WORLD_SIZE": str(world.size), "LOCAL_WORLD_SIZE": str(world.size)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    dist.init_process_group("gloo", f"file://{meeting}", timedelta(seconds=60), rank=world.rank, world_size=world.size)
    try:
        return function(world, *arguments)
    finally:
        leave_world()
