"""Several processes: started by torchrun, by srun, or by ourselves through torchrun."""

import logging
import os
import sys
import warnings
from datetime import timedelta
from typing import NoReturn

import torch
import torch.distributed as dist

from csml.config.schema import HardwareConfig
from csml.errors import CsmlError, reason
from csml.world import World, cores_each

FRESH_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
"""Set to 1, torchrun gives restarted processes a new place to find each other; else they may meet the dead's traces."""
PATIENCE = timedelta(minutes=30)
"""How long a process waits for one that is silent: it may write a checkpoint to a slow disk, or have the larger photos.
One that is dead closes its connections, and that is noticed at once."""


def join_world(hardware: HardwareConfig) -> World:
    """The processes this one belongs to; starts them first if several are asked for and nobody has.

    Only the first of them talks.
    """
    _from_slurm()
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        if hardware.devices > 1:
            _start(hardware.devices)
        return World()
    gpu = hardware.accelerator in ("auto", "cuda", "gpu") and torch.cuda.is_available()
    if not dist.is_initialized():
        try:  # beside NCCL gloo, for what lies on the CPU
            if gpu:
                torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
            dist.init_process_group("cpu:gloo,cuda:nccl" if gpu else "gloo", timeout=PATIENCE)
        except (RuntimeError, ValueError) as error:
            raise CsmlError(f"hardware.devices: the processes cannot reach each other ({reason(error)})") from error
    # torch wants another name for it, which older versions do not know.
    warnings.filterwarnings("ignore", message=".*broadcast_buffers.*deprecated.*")
    world = World(dist.get_rank(), dist.get_world_size())
    if not world.first:
        logging.getLogger("csml").setLevel(logging.ERROR)
    return world


def require_alone(command: str, hardware: HardwareConfig) -> None:
    """Refuse several processes where one is enough."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 or hardware.devices > 1:
        raise CsmlError(f"hardware.devices: csml {command} runs in one process; leave it out, and torchrun as well")


def was_restarted(world: World) -> bool:
    """Whether torchrun, or SLURM, has started us again after a process or a machine died.

    One of us may be new: the torchrun of a machine that has come back counts from 0.
    """
    counts = (int(os.environ.get(name, "0")) for name in ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"))
    return world.largest(max(counts)) > 0


def is_lost(error: RuntimeError) -> bool:
    """Whether an error says that another process no longer answers."""
    signs = ("connection closed by peer", "connection reset", "timed out", "timeout", "broken pipe", "nccl")
    return any(sign in str(error).lower() for sign in signs)


def _start(processes: int) -> NoReturn:
    """Become torchrun, which starts this very command so many times."""
    os.environ.setdefault(FRESH_STORE, "1")
    os.environ.setdefault("OMP_NUM_THREADS", str(cores_each(processes)))  # torchrun's own choice is one
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command += ["-m", "csml", *sys.argv[1:]]
    os.execv(sys.executable, command)


def _from_slurm() -> None:
    """srun's names for what torchrun calls rank and world."""
    told = os.environ
    size = told.get("SLURM_STEP_NUM_TASKS", "1")  # of a step, which only srun starts; a batch script is no step
    if "RANK" in told or size == "1" or "SLURM_PROCID" not in told:
        return
    from lightning_fabric.plugins.environments.slurm import SLURMEnvironment

    nodes = int(told.get("SLURM_STEP_NUM_NODES", "1"))
    told["RANK"], told["WORLD_SIZE"] = told["SLURM_PROCID"], size
    told["LOCAL_RANK"] = told.get("SLURM_LOCALID", "0")
    told["LOCAL_WORLD_SIZE"] = str(int(size) // nodes)
    first = SLURMEnvironment.resolve_root_node_address(told.get("SLURM_STEP_NODELIST", "127.0.0.1"))
    told.setdefault("MASTER_ADDR", first)
    told.setdefault("MASTER_PORT", str(15_000 + int(told.get("SLURM_JOB_ID", "0")) % 10_000))  # alike for all of a job
