"""Several processes of one run, started by torchrun, srun, or csml itself (api/processes.py)."""

import atexit
import logging
import os
import time
import warnings
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore
from torch.distributed import DistNetworkError, DistStoreError

from csml.config import HardwareConfig
from csml.distributed.world import World
from csml.errors import CsmlError, reason, some

PATIENCE = timedelta(minutes=30)
"""Timeout of collectives. A slow process may be writing a checkpoint to a slow disk or decoding larger images. A dead
process closes its connections, which is noticed at once."""
_HOST_PATIENCE = timedelta(seconds=3)
"""How much longer process 0 waits for all to join, so that the others can query its store for missing processes."""


def join_world(hardware: HardwareConfig) -> World:
    """Join the other processes of the run, if there are any. Only rank 0 logs."""
    _set_variables_from_slurm()
    size = _number("WORLD_SIZE", 1)
    if size == 1:
        return World()
    gpu = hardware.accelerator in ("auto", "cuda") and torch.cuda.is_available()
    if not dist.is_initialized():
        try:  # gloo beside NCCL, for tensors on the CPU
            if gpu:
                torch.cuda.set_device(_number("LOCAL_RANK", 0))
            _meet(size, "cpu:gloo,cuda:nccl" if gpu else "gloo", timedelta(minutes=hardware.join_minutes))
            atexit.register(leave_world)
        except (RuntimeError, ValueError) as error:
            raise CsmlError(f"hardware.devices: the processes cannot reach each other ({reason(error)})") from error
    # The new name of this argument does not exist in older versions of torch.
    warnings.filterwarnings("ignore", message=".*broadcast_buffers.*deprecated.*")
    world = World(dist.get_rank(), dist.get_world_size())
    if not world.is_rank_zero:
        logging.getLogger("csml").setLevel(logging.ERROR)
    return world


def _meet(size: int, backend: str, patience: timedelta) -> None:
    """Wait until every process has started, and connect them. Raises a CsmlError that names the missing ones.

    torch alone would wait for the timeout of collectives, without naming the missing process.
    """
    rank, host, port = _number("RANK", None), os.environ.get("MASTER_ADDR", "127.0.0.1"), _number("MASTER_PORT", None)
    if not 0 <= rank < size:
        raise CsmlError(f"RANK: {rank} is not one of 0 to {size - 1}, the processes that WORLD_SIZE stands for")
    if not 0 < port < 2**16:
        raise CsmlError(f"MASTER_PORT: {port} is not a port; choose one from 1024 to 65535")
    hosts = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"  # else the launcher does
    began = time.monotonic()
    try:
        store = TCPStore(host, port, size, hosts, patience, wait_for_workers=False, multi_tenant=True)
        store.set(joined_key(rank), "")
        try:
            store.wait([joined_key(other) for other in range(size)], patience + _HOST_PATIENCE * hosts)
        except DistStoreError:
            missing = [other for other in range(size) if not store.check([joined_key(other)])]
            raise CsmlError(_missing(missing, size, patience)) from None
    except DistNetworkError as error:
        if hosts:
            raise
        if time.monotonic() - began >= patience.total_seconds():
            raise CsmlError(f"{_missing([0], size, patience)}; it was expected at {host}:{port}") from error
        raise CsmlError(f"process 0 of {size}, which the others meet at, has ended before all had joined") from error
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=patience)
    # Public in torch.distributed only since 2.9; private before.
    set_timeout = getattr(dist, "set_timeout", None) or dist.distributed_c10d._set_pg_timeout
    set_timeout(PATIENCE)
    store.set_timeout(PATIENCE)


def joined_key(rank: int) -> str:
    """The key by which a process records in the store that it has started and joined."""
    return f"csml/joined/{rank}"


def _missing(ranks: list[int], size: int, patience: timedelta) -> str:
    names = ("process " if len(ranks) == 1 else "processes ") + some(map(str, ranks), 8)
    minutes = f"{patience.total_seconds() / 60:g}"
    return (
        f"hardware.join_minutes: {names} of {size} did not join within {minutes} minutes; "
        "see why it has not started, or give more minutes"
    )


def _number(name: str, otherwise: int | None) -> int:
    """A number from an environment variable set by a launcher."""
    text = os.environ.get(name, "" if otherwise is None else str(otherwise))
    if not text.isdecimal():
        raise CsmlError(
            f"{name}: expected a number in this environment variable, got {text!r}; unset WORLD_SIZE, or use torchrun"
        )
    return int(text)


def leave_world() -> None:
    """Close the connections to the other processes and end the threads of gloo, while Python still runs.

    A thread that still runs at exit can abort the process after its work is done.
    """
    if dist.is_initialized():
        dist.destroy_process_group()


def is_launched() -> bool:
    """Whether torchrun, srun or csml has started this process as one of several."""
    _set_variables_from_slurm()
    return _number("WORLD_SIZE", 1) > 1


def require_alone(command: str, hardware: HardwareConfig) -> None:
    """Raise a CsmlError if a command that uses a single process is run with several."""
    if is_launched() or hardware.devices > 1:
        raise CsmlError(f"hardware.devices: csml {command} runs in one process; leave it out, and do not use torchrun")


def was_restarted(world: World) -> bool:
    """Whether torchrun or SLURM has restarted the run after a process or a machine died.

    The maximum over all processes counts, because torchrun on a rebooted machine starts counting from 0.
    """
    return world.all_reduce_max(restart_count()) > 0


def restart_count() -> int:
    """How often torchrun or SLURM has restarted this process, as far as known."""
    return max(_number(name, 0) for name in ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"))


def is_lost(error: RuntimeError) -> bool:
    """Whether an error means that another process does not respond any more."""
    signs = ("connection closed by peer", "connection reset", "timed out", "timeout", "broken pipe", "nccl")
    return any(sign in str(error).lower() for sign in signs)


def _set_variables_from_slurm() -> None:
    """Under srun, set torchrun's environment variables (RANK, WORLD_SIZE, …) from SLURM's."""
    env = os.environ
    size = env.get("SLURM_STEP_NUM_TASKS", "1")  # set only in steps started by srun, not in a batch script
    if "RANK" in env or size == "1" or "SLURM_PROCID" not in env:
        return
    from lightning_fabric.plugins.environments.slurm import SLURMEnvironment

    nodes = int(env.get("SLURM_STEP_NUM_NODES", "1"))
    env["RANK"], env["WORLD_SIZE"] = env["SLURM_PROCID"], size
    env["LOCAL_RANK"] = env.get("SLURM_LOCALID", "0")
    env["LOCAL_WORLD_SIZE"] = str(int(size) // nodes)
    first = SLURMEnvironment.resolve_root_node_address(env.get("SLURM_STEP_NODELIST", "127.0.0.1"))
    env.setdefault("MASTER_ADDR", first)
    env.setdefault("MASTER_PORT", str(15_000 + int(env.get("SLURM_JOB_ID", "0")) % 10_000))  # the same for the job
