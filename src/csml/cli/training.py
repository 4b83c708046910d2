"""What the commands that train share: presets, resuming, and the run directory around a training loop."""

import logging
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from csml.config.detection import RANDOM
from csml.config.parsing import SettingsParser
from csml.config.presets import PRESETS, flatten, preset_settings
from csml.config.run_settings import first_difference, read_settings, settings_of, trained_with
from csml.config.schema import NAMED, RunConfig
from csml.errors import CsmlError, reason
from csml.program import program

if TYPE_CHECKING:  # torch takes seconds to import; a mistake in a setting should not have to wait for it
    from csml.training.loop import TrainingLoop
    from csml.training.run_directory import RunDirectory
    from csml.world import World

log = logging.getLogger("csml")

C = TypeVar("C", bound=RunConfig)


@dataclass(frozen=True)
class Options:
    """What is asked of a command beside the settings of the run."""

    overwrite: bool = False
    resume: str | None = None


def parse(
    command: str,
    schema: type[C],
    summary: str,
    arguments: list[str],
    check: Callable[[C], None],
    preset: Callable[[str], dict[str, Any]] = preset_settings,
    presets: tuple[str, ...] = PRESETS,
    from_weights: bool = False,
    inherits: tuple[str, ...] | None = (),
) -> tuple[C, Options]:
    """Settings in their order: defaults, those of the weights, preset (or the resumed run), --config, command line.

    Args:
        command, schema, summary: of the command.
        arguments: its command line.
        check: raises CsmlError for settings that cannot be.
        preset: the settings that the name of a preset stands for.
        presets: their names.
        from_weights: the command starts from weights, named first.
        inherits: keys whose defaults are those of the run the weights belong to, beside data, images and hardware;
            None: not even those.
    """
    if from_weights and arguments and not arguments[0].startswith("-"):
        arguments = ["--weights", *arguments]
    usage = f"csml {command} {'WEIGHTS ' if from_weights else ''}[--preset NAME] [--data FOLDER] [--KEY VALUE …]"
    chosen = _parser(command, schema, summary, usage, presets).first_look(arguments)
    parser = _parser(command, schema, summary, usage, presets)
    before: dict[str, Any] = {}
    if chosen.resume is not None:
        if chosen.preset is not None:
            raise CsmlError("preset: a resumed run has its settings; leave --preset out")
        before = read_settings(Path(chosen.resume).expanduser())
    else:
        if from_weights and inherits is not None and chosen.weights is not None:
            before = trained_with(Path(chosen.weights), inherits)
        if chosen.preset is not None:
            before |= preset(chosen.preset)
    parser.start_from(before, origin=chosen.resume or f"preset {chosen.preset}")
    settings = parser.settings(arguments)
    config = parser.build(settings, schema)
    check(config)
    for name in ("data", "weights", "labels", "list"):  # so that the run can be continued and judged from anywhere
        value = getattr(config, name, None)
        if value is not None and value not in (*NAMED, RANDOM) and "://" not in value:
            setattr(config, name, str(Path(value).expanduser().absolute()))
    if chosen.resume is not None:
        now = flatten(settings_of(config))
        if key := first_difference(before, now):
            was = f"the run was started with {before.get(key)}"
            raise CsmlError(f"{key}: {was}, so it cannot be resumed with {now.get(key)}")
    return config, Options(settings.overwrite, settings.resume)


def train(
    config: RunConfig,
    options: Options,
    name: str,
    notes: tuple[str, ...],
    make: "Callable[[RunDirectory], TrainingLoop]",
    finish: "Callable[[TrainingLoop], None] | None" = None,
) -> int:
    """Carry out a checked config in its run directory; returns the exit code.

    Args:
        config, options: as parsed.
        name: of the run, where --out does not say it.
        notes: how the data was understood.
        make: the loop for a run directory.
        finish: what is left to do when all epochs are done.
    """
    from csml.training.interruption import Interrupted
    from csml.training.launch import is_lost, join_world
    from csml.training.run_directory import log_to, write_facts

    world = join_world(config.hardware)
    run, resume = begin(world, config.out, options, name)
    handler = log_to(run.log) if world.first else logging.NullHandler()
    try:
        if resume is None and world.first:
            write_config(run, config)
        log.info("run directory %s", run.root)
        for note in notes:
            log.info(note)
        loop = make(run)
        if resume:
            loop.resume()
        elif world.first:
            precision = loop.fabric.strategy.precision.precision
            facts = {"images": len(loop.images), "fingerprint": loop.fingerprint}
            write_facts(run, {**facts, "device": str(loop.device), "precision": precision})
        loop.fit()
        if finish is not None:
            finish(loop)
        return 0
    except Interrupted as stop:
        log.warning(str(stop))
        return stop.exit_code
    except _memory_errors() as error:
        raise CsmlError(
            f"batch_size: {config.batch_size} needs more memory than there is; give a smaller one"
        ) from error
    except RuntimeError as error:
        if world.size == 1 or not is_lost(error):
            raise
        again = f"go on with --resume {shlex.quote(str(run.root))}"
        raise CsmlError(f"another process of the run is gone ({reason(error)}); {again}") from error
    except OSError as error:
        raise CsmlError(f"{error.filename or run.root}: {error.strerror or error}") from error
    except CsmlError as error:
        handler.handle(log.makeRecord(log.name, logging.ERROR, __file__, 0, str(error), (), None))
        raise
    finally:
        log.removeHandler(handler)
        handler.close()


def begin(world: "World", out: str | None, options: Options, name: str) -> "tuple[RunDirectory, Path | None]":
    """The run directory, made by the first process and told to the others, and it again if it is to be continued."""
    from csml.training.launch import was_restarted
    from csml.training.run_directory import RunDirectory, new_run, open_run

    again = was_restarted(world)

    def made() -> tuple[str, bool]:
        chosen = options
        if again and out and not options.resume:
            chosen = continue_options(Path(out).expanduser())
        run = open_run(chosen.resume) if chosen.resume else new_run(out, name, chosen.overwrite)
        return str(run.root), chosen.resume is not None

    root, resumed = world.told_by_first(made)
    return RunDirectory(Path(root)), Path(root) if resumed else None


def continue_options(root: Path) -> Options:
    """How to go on with a run that may have been cut off, or not have been started."""
    if any(root.glob("checkpoints/epoch-*.pt")) or any(root.glob("round-*/checkpoints/epoch-*.pt")):  # of csml mine
        return Options(resume=str(root))
    return Options(overwrite=(root / "config.yaml").exists())


def write_config(run: "RunDirectory", config: RunConfig) -> None:
    """config.yaml, whole or not at all."""
    from csml.data.cache import atomic_write

    with atomic_write(run.config) as temporary:
        temporary.write_text(yaml.safe_dump(settings_of(config), sort_keys=False))


def _memory_errors() -> tuple[type[BaseException], ...]:
    import torch

    return torch.OutOfMemoryError, MemoryError


def how_to_use(root: Path, labeled: bool) -> str:
    """The last thing a run prints."""
    lines = [
        "",
        "the backbone, in Python:",
        "    import csml",
        f"    backbone = csml.load_backbone({str(root)!r})",
        "    features = backbone(images)  # (B, 3, H, W), normalised → (B, C)",
    ]
    if labeled:
        lines += [
            "judge it:",
            *(f"    {program()} {command} {shlex.quote(str(root))}" for command in ("knn", "linear")),
        ]
    return "\n".join(lines)


def _parser(command: str, schema: type[Any], summary: str, usage: str, presets: tuple[str, ...]) -> SettingsParser:
    parser = SettingsParser(command, schema, summary, usage)
    parser.add_argument("--preset", type=str | None, default=None, help=f"Named settings: {', '.join(presets)}.")
    parser.add_argument("--resume", type=str | None, default=None, help="A run directory to continue exactly.")
    parser.add_argument(
        "--overwrite", type=bool, default=False, help="Delete what is in --out first.", nargs="?", const=True
    )
    return parser
