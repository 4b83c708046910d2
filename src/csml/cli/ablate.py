"""`csml ablate FILE`: every variation at every seed, what is missing of it, judged and put into one table."""

import logging
import re
import shlex
import unicodedata
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from csml.cli import knn, linear
from csml.cli.judging import is_judged, labeled_splits, settings_for
from csml.cli.pretrain import parse as parse_pretrain
from csml.cli.pretrain import pretrain
from csml.cli.training import continue_options
from csml.config.ablations import SHIPPED, Ablation, FewLabels, Variation, as_words, read_ablation
from csml.config.checks import check_knn, check_linear
from csml.config.parsing import SettingsParser
from csml.config.presets import flatten
from csml.config.protocols import KnnConfig, LinearConfig
from csml.config.run_settings import OF_THE_MACHINE, refuse_others, settings_of
from csml.config.schema import PretrainConfig
from csml.data.cache import cache_key
from csml.errors import CsmlError
from csml.program import program

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
    seeds: tuple[int, ...] | None = None
    """Instead of the seeds in the file."""
    dry_run: bool = False
    """Only say which runs there are and which are done."""


def run(arguments: list[str]) -> int:
    summary = "Train every variation in FILE at every seed, judge it, and write one table; what is done is kept."
    parser = SettingsParser("ablate", AblateConfig, summary, "csml ablate FILE [--scale NAME] [--out FOLDER]")
    parser.add_argument("file", type=str, help=f"A YAML file, or one of {', '.join(SHIPPED)}.")
    settings = parser.settings(arguments)
    config = parser.build(settings, AblateConfig)
    ablation = read_ablation(settings.file, config.scale)
    return ablate(ablation, config, shlex.join([program(), "ablate", *arguments]))


@dataclass(frozen=True)
class _Run:
    """One variation at one seed."""

    variation: Variation
    seed: int
    config: PretrainConfig
    knn: KnnConfig
    linear: LinearConfig

    @property
    def root(self) -> Path:
        return Path(str(self.config.out))

    @property
    def title(self) -> str:
        return f"{self.variation.name}, seed {self.seed}"


def ablate(ablation: Ablation, config: AblateConfig, command: str) -> int:
    """Run what is missing, in the order of the seeds, so that a first comparison of all variations comes early."""
    from csml.cli.few_labels import from_scratch
    from csml.report.ablation import write_outcome
    from csml.report.outcomes import Outcome, history, markdown, measure
    from csml.training.interruption import StopSignals
    from csml.training.launch import join_world

    name = ablation.name if config.scale is None else f"{ablation.name}-{config.scale}"
    folder = Path(config.out or f"runs/ablate-{name}").expanduser()
    ablation = replace(ablation, seeds=tuple(dict.fromkeys(config.seeds or ablation.seeds)))
    # Every setting is checked, and every finished run compared with its own, before the first hour is spent.
    runs = _planned(ablation, config, folder)
    done = {run.root: _is_done(run) for run in runs}
    log.info("%s: %d runs, %d of them done, in %s", ablation.title, len(runs), sum(done.values()), folder)
    if config.dry_run:
        for run in runs:
            print(f"{'done' if done[run.root] else 'to do'}  {run.title}: {run.root}")
        return 0
    world = join_world(runs[0].config.hardware)
    _require_labels(runs)
    made = {"command": command, "scale": config.scale, "setting": _setting(runs[0].config)}
    outcomes: list[Outcome] = []
    failed: dict[str, str] = {}
    with StopSignals() as signals:
        for number, run in enumerate(runs, 1):
            log.info("\n[%d/%d] %s%s", number, len(runs), run.title, ": done" if done[run.root] else "")
            try:
                code = _carry_out(run, done[run.root], ablation.few_labels)
            except CsmlError as error:  # one bad run should not cost the others
                if world.size > 1:  # it may be the mistake of one process, and the others wait for it
                    raise
                log.error("%s failed: %s", run.title, error)
                failed[run.title] = str(error)
                code = 0
            else:
                if code == 0 and world.first:
                    outcomes.append(
                        Outcome(run.variation, run.seed, measure(run.root, ablation.few_labels), history(run.root))
                    )
            if world.first:
                write_outcome(folder, ablation, outcomes, failed, made)
            caught = world.largest(signals.caught or 0)
            if code or caught:
                log.warning("what is done is kept; continue with: %s", command)
                return code or 128 + caught
        if ablation.few_labels and ablation.few_labels.scratch is not None:
            for seed in ablation.seeds:
                first = next(run for run in runs if run.seed == seed)
                words = _scratch_words(first, ablation.few_labels)
                place = folder / "labels-alone" / f"seed-{seed}"
                if config.runs is not None:
                    place = Path(config.runs).expanduser() / cache_key(sorted(words), seed)
                if code := from_scratch(place, ablation.few_labels, words, seed):
                    log.warning("what is done is kept; continue with: %s", command)
                    return code
                outcomes.append(
                    Outcome(Variation("labels alone", (), {}, {}), seed, measure(place, ablation.few_labels), [])
                )
            if world.first:
                write_outcome(folder, ablation, outcomes, failed, made)
    if outcomes and world.first:
        console = Console(soft_wrap=True, highlight=False)
        console.print(f"\n{ablation.title}\n")
        console.print(markdown(outcomes, ablation.paper), markup=False)
        console.print(f"table, numbers and plot: {folder}/table.md, runs.csv, results.json, plot.png")
    for title, problem in failed.items():
        log.error("%s failed: %s", title, problem)
    return 1 if failed else 0


def _planned(ablation: Ablation, asked: AblateConfig, folder: Path) -> list[_Run]:
    _refuse_equal_folders(ablation)
    runs = []
    for seed in ablation.seeds:
        for variation in ablation.variations:
            config = run_config(variation, seed, asked.data, folder)
            if asked.runs is not None:
                config = replace(config, out=str(Path(asked.runs).expanduser() / _digest(config)))
            by_knn = settings_for("knn", KnnConfig, config, as_words(ablation.knn))
            by_linear = settings_for("linear", LinearConfig, config, [*variation.preset, *as_words(ablation.linear)])
            check_knn(by_knn)
            check_linear(by_linear)
            runs.append(_Run(variation, seed, config, by_knn, by_linear))
    return runs


def _require_labels(runs: list[_Run]) -> None:
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


def run_config(variation: Variation, seed: int, data: str | None, folder: Path) -> PretrainConfig:
    """The settings of one run, checked."""
    words = [*variation.arguments, "--seed", str(seed), "--out", str(folder / _slug(variation.name) / f"seed-{seed}")]
    if data is not None:
        words += ["--data", data]
    try:
        config, _ = parse_pretrain(words)
        if variation.times:
            before = flatten(settings_of(config))
            for key, factor in variation.times.items():
                if not isinstance(before.get(key), int | float):
                    raise CsmlError(f"times.{key}: {key} is not a number that could be multiplied")
                changed = factor * before[key]
                words += [f"--{key}", str(round(changed) if isinstance(before[key], int) else changed)]
            config, _ = parse_pretrain(words)
    except CsmlError as error:
        raise CsmlError(f"{variation.name}: {error}") from error
    return config


def _is_done(run: _Run) -> bool:
    """Whether the run is finished. A directory made with other settings is refused, never mixed into a table."""
    from csml.training.metrics import read_metrics

    if not (run.root / "config.yaml").exists():
        return False
    refuse_others(run.root, run.config)
    records = read_metrics(run.root / "metrics.jsonl")
    return bool(records) and records[-1]["epoch"] == run.config.epochs


def _carry_out(run: _Run, done: bool, few: FewLabels | None) -> int:
    """Train what is left of a run, judge it where that was not done; the exit code."""
    from csml.cli.few_labels import judge

    root = str(run.root)
    if not done:
        code = pretrain(run.config, continue_options(run.root))
        if code:
            return code
    if not is_judged(run.root / "knn.json", root, run.knn):
        knn.carry_out(root, run.knn)
    judged = is_judged(run.root / "linear.json", root, run.linear)
    if not judged and (code := linear.carry_out(root, run.linear, resume="can")):
        return code
    return judge(run.root, few, run.variation.preset, run.seed) if few else 0


def _scratch_words(run: _Run, few: FewLabels) -> list[str]:
    """The data and the network of a run, and what the file says of training with labels alone."""
    same = ("data", "images.", "hardware.", "model.backbone", "model.small_images")
    settings = {k: v for k, v in flatten(settings_of(run.config)).items() if k.startswith(same) and v is not None}
    return [*run.variation.preset, *as_words(settings), *as_words(few.scratch or {})]


def _digest(config: PretrainConfig) -> str:
    """A name that runs of equal settings have in common."""
    settings = {k: v for k, v in flatten(settings_of(config)).items() if not k.startswith(OF_THE_MACHINE)}
    return cache_key(sorted(settings.items()))


def _slug(name: str) -> str:
    """A folder for a variation: `MoCo v2, double epochs` → `moco-v2-double-epochs`."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().replace(" + ", "+")
    return re.sub(r"[^A-Za-z0-9_.+]+", "-", plain).strip("-.+").lower()


def _refuse_equal_folders(ablation: Ablation) -> None:
    folders: dict[str, str] = {}
    for name in (variation.name for variation in ablation.variations):
        other = folders.setdefault(_slug(name), name)
        if other != name or not _slug(name):
            raise CsmlError(f"variations: {name!r} needs a folder name of its own; use other letters or digits")
