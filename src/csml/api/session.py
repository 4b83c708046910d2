"""The run directory of a training: made or opened, logged to, with every failure reported in one line."""

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from lightning_fabric import Fabric

from csml.api.fastest_precision import hardware_for, with_hardware
from csml.api.processes import in_processes
from csml.api.run import PathLike, Run, path_of
from csml.config import RunConfig
from csml.data.images import Images
from csml.data.loading import fabric_for
from csml.distributed.failure import ProcessLost, failed_process
from csml.distributed.launch import is_launched, restart_count, was_restarted
from csml.distributed.world import World
from csml.errors import CsmlError, machine_problem
from csml.models.backbones import Backbone
from csml.runs.directory import RunDirectory
from csml.runs.locks import only_writer, require_unused
from csml.runs.metadata import read_metadata, write_metadata
from csml.runs.opening import clear, log_to, new_run, open_run, require_free
from csml.runs.settings import write_config
from csml.training.loop import TrainingLoop
from csml.training.task import Task

log = logging.getLogger("csml")


@dataclass(frozen=True)
class Options:
    """Arguments of a verb that trains, other than the settings of the run."""

    overwrite: bool = False
    resume: str | None = None
    """run directory to continue"""


@dataclass(frozen=True)
class Session:
    """A run directory that is being written."""

    world: World
    verb: str
    run: RunDirectory
    resumed: bool


C = TypeVar("C", bound=RunConfig)


def start(
    function: Callable[[C, Options, Any], Path],
    config: C,
    overwrite: bool,
    resume: "Run | PathLike | None",
    in_memory: Any = None,
) -> Run:
    """Call a function that trains, here or in worker processes, and open the run that it made.

    Args:
        function: takes settings, options and the images that were passed in memory; returns the run directory.
        config: checked settings.
        overwrite, resume: as given to the verb.
        in_memory: images, where they were passed instead of a path.
    """
    options = Options(overwrite, path_of(resume))
    may_exist = is_launched() or restart_count() > 0  # a launcher or a cluster may have restarted the run
    if options.resume is None and not may_exist:
        require_free(config.out, overwrite)
    return Run(in_processes(function, config.hardware, config, options, in_memory), data=in_memory)


@contextlib.contextmanager
def run_session(
    world: World, verb: str, config: RunConfig, options: Options, name: str, notes: tuple[str, ...] = ()
) -> Iterator[Session]:
    """Make or open the run directory, write its settings, and log to it while the block runs.

    Args:
        world: the processes of the run.
        verb: recorded in run.json.
        config: checked settings.
        options: overwrite or resume.
        name: of the run, where `config.out` does not say it.
        notes: how the data was read, for the log.
    """
    with contextlib.ExitStack() as held:
        run, resumed = _begin(world, config, options, name, held)
        with _logged(world, config, run):
            log.info("run directory %s", run.root)
            for note in notes:
                log.info(note)
            yield Session(world, verb, run, resumed)


@contextlib.contextmanager
def _logged(world: World, config: RunConfig, run: RunDirectory) -> Iterator[None]:
    """Log to the run directory, and report every failure in one line."""
    handler = log_to(run.log) if world.is_rank_zero else logging.NullHandler()
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise CsmlError(
            f"batch_size: {config.batch_size} needs more memory than there is; give a smaller one"
        ) from error
    except CsmlError as error:
        handler.handle(log.makeRecord(log.name, logging.ERROR, __file__, 0, str(error), (), None))
        raise
    except (OSError, RuntimeError, EOFError) as error:
        if (text := machine_problem(error)) is not None:
            raise CsmlError(f"{text} (in {run.root})") from error
        if (text := failed_process(error)) is None:
            raise
        raise ProcessLost(f"{text}; resume {run.root} to continue") from error
    finally:
        log.removeHandler(handler)
        handler.close()


def with_resolved_hardware(session: Session, config: C) -> C:
    """The settings of a run with precision and memory layout decided: anew, or as recorded by a resumed run."""
    made: C = with_hardware(config, read_metadata(session.run.root) if session.resumed else {})
    return made


def hardware_record(config: RunConfig, fabric: Fabric) -> dict[str, Any]:
    """Device, precision and layout of the run, for run.json."""
    precision = fabric.strategy.precision.precision
    return {"precision": precision, "channels_last": config.hardware.channels_last is not False}


def train(session: Session, task: Task, config: RunConfig, fabric: Fabric) -> None:
    """Train a task from the start, or from the newest checkpoint of a resumed run."""
    loop = TrainingLoop(task, config, session.run, fabric)
    continued = session.resumed and loop.resume()
    if loop.is_done():
        log.info("all epochs of %s were trained before", session.run.root)
    if not continued and session.world.is_rank_zero:
        known = {"images": len(task.images), "fingerprint": task.fingerprint, "device": str(fabric.device)}
        known |= hardware_record(config, fabric)
        write_metadata(session.run, session.verb, known)
    loop.fit()


def device_for(images: Images, config: Any, network: Backbone | None = None) -> Fabric:
    """The device that a config with `images` and `hardware` asks for; the network, or else a `model` in the config,
    decides the precision."""
    return fabric_for(images, config.images.workers, hardware_for(config, network))


def continue_options(run: RunDirectory) -> Options:
    """Options that continue an interrupted run, or start it if there is none."""
    if run.has_checkpoint():
        return Options(resume=str(run.root))
    return Options(overwrite=run.config.exists())


def _begin(
    world: World, config: RunConfig, options: Options, name: str, held: contextlib.ExitStack
) -> tuple[RunDirectory, bool]:
    """The run directory, made and locked by rank 0, and whether the run is resumed."""
    restarted, out = was_restarted(world), config.out

    def made() -> tuple[str, bool]:
        chosen = options
        if restarted and out and not options.resume:
            chosen = continue_options(RunDirectory(Path(out).expanduser()))
        run = open_run(chosen.resume) if chosen.resume else new_run(out, name, chosen.overwrite)
        held.enter_context(only_writer(run.root))
        if not chosen.resume:
            new_run(str(run.root), name, chosen.overwrite)  # another process may have written there before
            require_unused(run.root)
            clear(run)
            write_config(run, config)  # first, so that an interrupted directory is recognised as a run
        return str(run.root), chosen.resume is not None

    root, resumed = world.broadcast(made)
    return RunDirectory(Path(root)), resumed
