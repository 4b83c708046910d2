"""Several processes of one run, started by torchrun, srun, or csml itself (api/processes.py)."""

import atexit
import logging
import os
import warnings
from datetime import timedelta

import torch
import torch.distributed as dist

from csml.config import HardwareConfig
from csml.distributed.world import World
from csml.errors import CsmlError, reason

FRESH_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
"""With 1, torchrun gives restarted processes a new rendezvous store; the old one may hold keys of dead processes."""
PATIENCE = timedelta(minutes=30)
"""Timeout of collectives. A slow process may be writing a checkpoint to a slow disk or decoding larger images. A dead
process closes its connections, which is noticed at once."""


def join_world(hardware: HardwareConfig) -> World:
    """Join the other processes of the run, if there are any. Only rank 0 logs."""
    _set_variables_from_slurm()
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return World()
    gpu = hardware.accelerator in ("auto", "cuda", "gpu") and torch.cuda.is_available()
    if not dist.is_initialized():
        try:  # gloo beside NCCL, for tensors on the CPU
            if gpu:
                torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
            dist.init_process_group("cpu:gloo,cuda:nccl" if gpu else "gloo", timeout=PATIENCE)
            atexit.register(leave_world)
        except (RuntimeError, ValueError) as error:
            raise CsmlError(f"hardware.devices: the processes cannot reach each other ({reason(error)})") from error
    # The new name of this argument does not exist in older versions of torch.
    warnings.filterwarnings("ignore", message=".*broadcast_buffers.*deprecated.*")
    world = World(dist.get_rank(), dist.get_world_size())
    if not world.is_rank_zero:
        logging.getLogger("csml").setLevel(logging.ERROR)
    return world


def leave_world() -> None:
    """Close the connections to the other processes and end the threads of gloo, while Python still runs.

    A thread that is left to the very end can abort the process after its work is done.
    """
    if dist.is_initialized():
        dist.destroy_process_group()


def is_launched() -> bool:
    """Whether torchrun, srun or csml has started this process as one of several."""
    _set_variables_from_slurm()
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def require_alone(command: str, hardware: HardwareConfig) -> None:
    """Raise a CsmlError if a command that uses a single process is run with several."""
    if is_launched() or hardware.devices > 1:
        raise CsmlError(f"hardware.devices: csml {command} runs in one process; leave it out, and do not use torchrun")


def was_restarted(world: World) -> bool:
    """Whether torchrun or SLURM has restarted the run after a process or a machine died.

    The maximum over all processes counts, since torchrun on a machine that came back starts to count from 0.
    """
    return world.all_reduce_max(restart_count()) > 0


def restart_count() -> int:
    """How often torchrun or SLURM has restarted this process, as far as it knows."""
    return max(int(os.environ.get(name, "0")) for name in ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"))


def is_lost(error: RuntimeError) -> bool:
    """Whether an error means that another process does not respond any more."""
    signs = ("connection closed by peer", "connection reset", "timed out", "timeout", "broken pipe", "nccl")
    return any(sign in str(error).lower() for sign in signs)


def _set_variables_from_slurm() -> None:
    """Under srun, set torchrun's environment variables (RANK, WORLD_SIZE, …) from SLURM's."""
    env = os.environ
    size = env.get("SLURM_STEP_NUM_TASKS", "1")  # set in a step, which only srun starts; a batch script is not a step
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
