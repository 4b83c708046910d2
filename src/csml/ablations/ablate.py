"""`csml.ablate`: train and evaluate every variation with every seed, and write one table."""

import logging
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from csml.ablations.files import read_outcomes, write_outcome
from csml.ablations.outcomes import Outcome, markdown
from csml.ablations.plans import Ablation, Variation, as_words, read_ablation
from csml.ablations.runs import LabelsAlone, PlannedRun, labels_alone, planned
from csml.api.data import labeled_splits
from csml.api.processes import in_processes
from csml.api.run import PathLike
from csml.api.settings import plain_config
from csml.config import AblateConfig, PretrainConfig, as_settings, sources_title
from csml.console import show_log
from csml.distributed.launch import join_world
from csml.distributed.world import World
from csml.errors import CsmlError, disk_problem
from csml.files import exists_or_creatable
from csml.runs.interruption import Interrupted, StopSignals
from csml.runs.locks import lock_each

log = logging.getLogger("csml")


@dataclass(frozen=True)
class AblationResult:
    """The results of an ablation."""

    title: str
    folder: Path
    """folder of table.md, runs.csv, results.json and the plot"""
    table: str
    """Markdown: mean ± deviation over seeds"""
    runs: list[tuple[str, Path, bool]]
    """title and directory of every run, and whether it is finished"""
    failed: dict[str, str]
    """title of each run that failed, and why"""


@show_log()
def ablate(file: PathLike, *, config: PathLike | None = None, **settings: Any) -> AblationResult:
    """Train and evaluate every variation in a file with every seed, and write one table; finished runs are reused.

    Concurrent calls, on one machine or on several with a shared disk, share the runs.

    Args:
        file: a YAML file, or the name of one that comes with csml, such as `modules`.
        config: a YAML file of settings.
        settings: any setting of `csml ablate --help`, such as `scale`, `out`, `seeds`.
    """
    made = ablate_config(config=config, **settings)
    ablation = read_ablation(str(file), made.scale)
    ablation = replace(ablation, seeds=tuple(dict.fromkeys(made.seeds or ablation.seeds)))
    if made.tune:
        ablation = replace(ablation, variations=tuple(_tuned(variation) for variation in ablation.variations))
    plan = Plan.of(ablation, made)
    for key, place in (("out", plan.folder), ("runs", Path(made.runs).expanduser() if made.runs else plan.folder)):
        try:
            if exists_or_creatable(place) and not place.is_dir():
                raise CsmlError(f"{key}: {place} is a file; give a folder, or the name of a new one")
        except OSError as error:
            raise CsmlError(f"{key}: cannot make {place} ({disk_problem(error)})") from error
    defaults = as_settings(AblateConfig())
    changed = {key: value for key, value in as_settings(made).items() if value != defaults[key]}
    command = shlex.join(["csml", "ablate", str(file), *as_words(changed)])
    return in_processes(run_ablation, plan.trained[0].config.hardware, ablation, plan, made, command)


def ablate_config(file: Any = None, *, config: PathLike | None = None, **settings: Any) -> AblateConfig:
    """The settings that `ablate` would run with, checked; `file` is ignored."""
    return plain_config(AblateConfig, settings, config)


@dataclass(frozen=True)
class Plan:
    """All runs of an ablation. All settings are checked, and finished runs compared, before any training."""

    folder: Path
    trained: list[PlannedRun]
    runs: list[PlannedRun | LabelsAlone]
    setting: str
    """description of the settings that all runs share"""

    @staticmethod
    def of(ablation: Ablation, config: AblateConfig) -> "Plan":
        name = "-".join([ablation.name, *filter(None, [config.scale]), *(["tune"] if config.tune else [])])
        folder = Path(config.out or f"runs/ablate-{name}").expanduser()
        shared = Path(config.runs).expanduser() if config.runs is not None else None
        few = ablation.few_labels
        trained = planned(ablation, config.data, folder, shared)
        alone = labels_alone(trained, few, folder, shared) if few and few.scratch is not None else []
        return Plan(folder, trained, [*trained, *alone], _setting(trained[0].config))


def run_ablation(ablation: Ablation, plan: Plan, config: AblateConfig, command: str) -> AblationResult:
    """Run what is missing, ordered by seed, so that a first comparison of all variations is available early."""
    runs, folder = plan.runs, plan.folder
    missing = {run.title for run in runs if not run.is_done()}
    outcomes = {
        found.title: found
        for place in config.earlier
        for found in read_outcomes(Path(place).expanduser(), ablation, plan.setting)
        if found.title in missing
    }
    missing -= outcomes.keys()
    log.info("%s: %d runs, %d of them done, in %s", ablation.title, len(runs), len(runs) - len(missing), folder)
    if config.dry_run:
        return _result(ablation, plan, outcomes, {}, missing)
    world = join_world(plan.trained[0].config.hardware)
    _require_labels(world, [run for run in plan.trained if run.title not in outcomes])
    made = {"command": command, "scale": config.scale, "setting": plan.setting}
    failed: dict[str, str] = {}
    left = [run for run in runs if run.title not in outcomes]

    def write() -> None:
        if world.is_rank_zero:
            write_outcome(folder, ablation, _in_order(runs, outcomes), failed, made)

    if outcomes:
        write()
    with StopSignals("this run") as signals:

        def caught() -> int:
            return world.all_reduce_max(signals.caught or 0)

        for run in lock_each(left, lambda run: run.run.root, world, stopped=caught):
            finished = ": done" if run.is_done() else ""
            log.info("\n[%d/%d] %s%s", runs.index(run) + 1, len(runs), run.title, finished)
            try:
                run.carry_out()
            except CsmlError as error:  # one failed run should not stop the others
                if world.size > 1:  # the error may be in one process only, and the others wait for it
                    raise
                log.error("%s failed: %s", run.title, error)
                failed[run.title] = str(error)
            except Interrupted as stop:
                raise Interrupted(stop.signal, f"{run.title}, {stop.where}", folder, "ablate") from stop
            else:
                if world.is_rank_zero:
                    outcomes[run.title] = run.outcome()
            write()
            if caught():
                break
        if number := caught():
            raise Interrupted(number, f"{ablation.title}, {len(outcomes)} of {len(runs)} runs", folder, "ablate")
    return _result(ablation, plan, outcomes, failed, set(failed))


def _result(
    ablation: Ablation, plan: Plan, outcomes: dict[str, Outcome], failed: dict[str, str], missing: set[str]
) -> AblationResult:
    table = markdown(_in_order(plan.runs, outcomes), ablation.paper) if outcomes else ""
    runs = [(run.title, run.run.root, run.title not in missing) for run in plan.runs]
    return AblationResult(ablation.title, plan.folder, table, runs, failed)


def _in_order(runs: Sequence[PlannedRun | LabelsAlone], outcomes: dict[str, Outcome]) -> list[Outcome]:
    """Sort by the order of the rows in the file."""
    return [outcomes[run.title] for run in runs if run.title in outcomes]


def _require_labels(world: World, runs: Sequence[PlannedRun]) -> None:
    """Check that each data set has labels, before any training."""
    seen = set()
    for run in runs:
        key = (run.config.data, str(run.config.images))
        if key not in seen:
            labeled_splits(world, run.knn.data, run.knn.images)
            seen.add(key)


def _tuned(variation: Variation) -> Variation:
    """The same variation, evaluated on validation images."""
    return replace(variation, settings={**variation.settings, "images.test": "validation"})


def _setting(config: PretrainConfig) -> str:
    images = sources_title(config.data) + (f", {config.images.sample:,} images" if config.images.sample else "")
    training = f"network {config.model.backbone}, {config.epochs} epochs of batch {config.batch_size}"
    judged = "; evaluated on validation images" if config.images.test == "validation" else ""
    return f"{images}, {config.images.size} pixels; {training}{judged}"
