"""`csml ablate FILE`: every variation at every seed, what is missing of it, judged and put into one table."""

import logging
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from csml.cli.ablation_runs import LabelsAlone, PlannedRun, labels_alone, planned
from csml.cli.judging import labeled_splits
from csml.config.ablations import SHIPPED, Ablation, read_ablation
from csml.config.parsing import SettingsParser
from csml.config.schema import PretrainConfig
from csml.errors import CsmlError
from csml.program import program

if TYPE_CHECKING:
    from csml.report.outcomes import Outcome

log = logging.getLogger("csml")


@dataclass
class AblateConfig:
    """Settings of `csml ablate`."""

    scale: str | None = None
    """Of a file that has several, such as demo, cifar10 or paper."""
    data: str | None = None
    """Images for all runs; by default what the file says."""
    out: str | None = None
    """Directory of all runs and of the table; by default runs/ablate-NAME or runs/ablate-NAME-SCALE."""
    runs: str | None = None
    """Directory of runs that several ablations share, named by their settings: a run that stands in two tables is
    trained once. By default the runs are in --out, named by their rows."""
    earlier: tuple[str, ...] = ()
    """Other --out of this file: what their tables have of its runs is taken over, and only the rest is run. For runs
    that are gone, or on machines without a common disk."""
    seeds: tuple[int, ...] | None = None
    """Instead of the seeds in the file."""
    dry_run: bool = False
    """Only say which runs there are and which are done."""


def run(arguments: list[str]) -> int:
    summary = (
        "Train every variation in FILE at every seed, judge it, and write one table; what is done is kept. Given "
        "several times at once, on one machine or on many with a common disk, the runs are shared out."
    )
    parser = SettingsParser("ablate", AblateConfig, summary, "csml ablate FILE [--scale NAME] [--out FOLDER]")
    parser.add_argument("file", type=str, help=f"A YAML file, or one of {', '.join(SHIPPED)}.")
    settings = parser.settings(arguments)
    config = parser.build(settings, AblateConfig)
    ablation = read_ablation(settings.file, config.scale)
    return ablate(ablation, config, shlex.join([program(), "ablate", *arguments]))


def ablate(ablation: Ablation, config: AblateConfig, command: str) -> int:
    """Run what is missing, in the order of the seeds, so that a first comparison of all variations comes early."""
    from csml.cli.claims import unclaimed
    from csml.report.ablation import read_outcomes, write_outcome
    from csml.report.outcomes import markdown
    from csml.training.interruption import StopSignals
    from csml.training.launch import join_world

    name = ablation.name if config.scale is None else f"{ablation.name}-{config.scale}"
    folder = Path(config.out or f"runs/ablate-{name}").expanduser()
    shared = Path(config.runs).expanduser() if config.runs is not None else None
    ablation = replace(ablation, seeds=tuple(dict.fromkeys(config.seeds or ablation.seeds)))
    few = ablation.few_labels
    # Every setting is checked, and every finished run compared with its own, before the first hour is spent.
    trained = planned(ablation, config.data, folder, shared)
    alone = labels_alone(trained, few, folder, shared) if few and few.scratch is not None else []
    runs: list[PlannedRun | LabelsAlone] = [*trained, *alone]
    setting = _setting(trained[0].config)
    missing = {run.title for run in runs if not run.is_done()}
    outcomes = {
        found.title: found
        for place in config.earlier
        for found in read_outcomes(Path(place).expanduser(), ablation, setting)
        if found.title in missing
    }
    missing -= outcomes.keys()
    log.info("%s: %d runs, %d of them done, in %s", ablation.title, len(runs), len(runs) - len(missing), folder)
    if config.dry_run:
        for run in runs:
            print(f"{'to do' if run.title in missing else 'done'}  {run.title}: {run.root}")
        return 0
    world = join_world(trained[0].config.hardware)
    left = [run for run in runs if run.title not in outcomes]
    _require_labels([run for run in trained if run.title not in outcomes])
    made = {"command": command, "scale": config.scale, "setting": setting}
    failed: dict[str, str] = {}
    code = 0
    if outcomes and world.first:
        write_outcome(folder, ablation, _in_order(runs, outcomes), failed, made)
    with StopSignals() as signals:

        def caught() -> int:
            return world.largest(signals.caught or 0)

        for run in unclaimed(left, lambda run: run.root, world, stopped=caught):
            finished = ": done" if run.is_done() else ""
            log.info("\n[%d/%d] %s%s", runs.index(run) + 1, len(runs), run.title, finished)
            try:
                code = run.carry_out()
            except CsmlError as error:  # one bad run should not cost the others
                if world.size > 1:  # it may be the mistake of one process, and the others wait for it
                    raise
                log.error("%s failed: %s", run.title, error)
                failed[run.title] = str(error)
                code = 0
            else:
                if code == 0 and world.first:
                    outcomes[run.title] = run.outcome()
            if world.first:
                write_outcome(folder, ablation, _in_order(runs, outcomes), failed, made)
            if code or caught():
                break
        if number := caught():
            code = code or 128 + number
    if code:
        log.warning("what is done is kept; continue with: %s", command)
        return code
    if outcomes and world.first:
        console = Console(soft_wrap=True, highlight=False)
        console.print(f"\n{ablation.title}\n")
        console.print(markdown(_in_order(runs, outcomes), ablation.paper), markup=False)
        console.print(f"table, numbers and plot: {folder}/table.md, runs.csv, results.json, plot.png")
    for title, problem in failed.items():
        log.error("%s failed: %s", title, problem)
    return 1 if failed else 0


def _in_order(runs: Sequence[PlannedRun | LabelsAlone], outcomes: dict[str, "Outcome"]) -> list["Outcome"]:
    """By the rows of the file, not by what was ready first."""
    return [outcomes[run.title] for run in runs if run.title in outcomes]


def _require_labels(runs: Sequence[PlannedRun]) -> None:
    """Each data set is opened once, before anything is trained."""
    seen = set()
    for run in runs:
        key = (run.config.data, str(run.config.images))
        if key not in seen:
            labeled_splits(run.knn)
            seen.add(key)


def _setting(config: PretrainConfig) -> str:
    """What all runs have in common, for people."""
    images = Path(config.data).name + (f", {config.images.sample:,} images" if config.images.sample else "")
    training = f"network {config.model.backbone}, {config.epochs} epochs of batch {config.batch_size}"
    return f"{images}, {config.images.size} pixels; {training}"
