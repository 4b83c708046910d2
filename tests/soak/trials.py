"""A trial: one command is disturbed until it ends, gone on with each time, and compared with an undisturbed run."""

import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from csml.errors import CsmlError
from csml.runs.checkpoint import load_newest
from soak.comparing import Lost, compare
from soak.moments import DISTURBANCES, FILLER, disturb, watch
from soak.victims import Cold, Forked, Victim, end, wait
from soak.works import WORKS, Work, spelt

_PATIENCE = 120.0
"""Seconds after which a command hangs."""
_LAUNCHER = 15.0
"""Seconds that a launcher gives ranks to notice that another has died, before it ends them."""
_MOST, _FEW = 16, 4
"""Disturbances of a trial; a command of several processes takes long to start."""
_IMPORT = 5.0
"""Seconds that a cold start takes to import, about."""

_FILES = {
    "checkpoints": "checkpoint", "neighbors": "neighbour set", "cache/": "cache", "metrics": "metrics",
    ".safetensors": "weights", ".lock": "lock", "labels": "labels", "tests.csv": "labels", "sqlite": "labels",
    "scores.npy": "scores", "config.yaml": "settings", "run.json": "settings", "results.json": "table",
    ".json": "result", "log.txt": "log", "table.md": "table", "runs.csv": "table", "plot": "table",
}  # fmt: skip
"""A part of a file's path, and what the file holds."""


@dataclass(frozen=True)
class Ground:
    """Where trials take place."""

    place: Path
    """inputs, undisturbed runs and everything that is to be kept"""
    disk: Path
    """what disturbed commands write to; small, so that it can be filled"""
    can_fill: bool

    @property
    def out(self) -> Path:
        return self.disk / "run"

    @property
    def environment(self) -> dict[str, str]:
        """Nothing is measured: with an empty cache, what is fast just then would decide how a run computes."""
        return {"CSML_CACHE": str(self.disk / "cache"), "CSML_MEASURE": "0", "OMP_NUM_THREADS": "1"}

    def undisturbed(self, name: str) -> Path:
        return self.place / "undisturbed" / name

    def clean(self) -> None:
        for path in self.disk.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def disturbances(self) -> list[str]:
        """Half of them are SIGKILL."""
        return ["SIGKILL"] * 2 + [how for how in DISTURBANCES if self.can_fill or how != "full disk"]


@dataclass(frozen=True)
class Measured:
    """How long an undisturbed run is."""

    seconds: float
    changes: int
    """of files"""


@dataclass
class Trial:
    """What has happened so far."""

    name: str
    kills: list[tuple[str, str]] = field(default_factory=list)
    """each disturbance, and its moment in words"""
    lines: set[str] = field(default_factory=set)
    """last lines of commands that did not end by themselves"""


def run_undisturbed(ground: Ground, name: str) -> Measured:
    """Run a command once, to compare with."""
    ground.clean()
    wait(Forked(["--version"], ground.environment, 1, None), 300)  # the process that others are forked from is there
    notes, began, out = ground.place / f"{name}.changes", time.monotonic(), ground.undisturbed(name)
    notes.unlink(missing_ok=True)
    work = WORKS[name]
    first = partial(watch, ground.disk, notes, None)
    victim = Forked(spelt(work.words, ground.place, ground.out), ground.environment, work.ranks, first)
    if not wait(victim, 300) or any(victim.codes()):
        end(victim)
        raise SystemExit(f"{name} failed undisturbed: {victim.printed}")
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(ground.out, out)
    changes = len(notes.read_text().splitlines()) if notes.exists() else 0  # those of devices are in other processes
    return Measured(time.monotonic() - began, changes)


def run_trial(ground: Ground, trial: Trial, measured: Measured, dice: random.Random) -> None:
    """Disturb a command until it ends, or often enough, and compare. Raises Lost if anything is."""
    ground.clean()
    work, out = WORKS[trial.name], ground.out
    reached: dict[Path, tuple[int, int]] = {}
    words = spelt(work.words, ground.place, out)
    while True:
        how = dice.choice(ground.disturbances()) if len(trial.kills) < (_FEW if work.many else _MOST) else None
        victim, moment = _disturbed(ground, work, words, how, measured, dice)
        (ground.disk / FILLER).unlink(missing_ok=True)
        (ground.place / "last.txt").write_text(f"{how} {moment}\n{words}\n{victim.printed}")
        if not any(victim.codes()):
            break
        if how is None:
            raise Lost(f"it cannot be finished: {victim.printed[-500:]}")
        trial.kills.append((how, moment))
        trial.lines |= set(last_lines(victim, how))
        now = dict(progress(out))
        for folder, before in reached.items():
            if folder in now and now[folder] < before:
                raise Lost(f"{folder} went back from {before} to {now[folder]} at {how}, {moment}")
        reached = now
        words = spelt(work.again if work.again and now else work.words, ground.place, out)
        if not now and work.again and (out / "config.yaml").exists():
            words.append("--overwrite")
    compare(ground.undisturbed(trial.name), out)


def _disturbed(
    ground: Ground, work: Work, words: list[str], how: str | None, measured: Measured, dice: random.Random
) -> tuple[Victim, str]:
    """The command after it has ended, and the moment of the disturbance in words."""
    notes, kind = ground.place / "moment.txt", dice.random()
    notes.unlink(missing_ok=True)
    early = _early(dice)
    if how is None or (kind < 0.6 and not work.many):
        number, delay = 1 + int(early * measured.changes), dice.choice([0.0, dice.expovariate(1000) + 1e-6])
        first = None if how is None else partial(watch, ground.disk, notes, how, number, delay)
        victim: Victim = Forked(words, ground.environment, work.ranks, first)
        until_end(victim, work.ranks, _PATIENCE)
        return victim, moment_of(notes)
    seconds = early * measured.seconds
    if kind > 0.85 and not work.many:
        seconds, victim = dice.uniform(0, _IMPORT), Cold(words, ground.environment, ground.place / "cold.txt")
        moment = "importing"
    else:
        victim = Forked(words, ground.environment, work.ranks, None)
        moment = "by the clock" if (ground.out / "config.yaml").exists() else "starting"
    if not wait(victim, seconds):
        chosen = [one for one, code in zip(victim.processes, victim.codes(), strict=True) if code is None]
        if how != "SIGTERM" or dice.random() < 0.5:
            chosen = [dice.choice(chosen)]
        for process in chosen:
            disturb(str(how), process, ground.disk)
    until_end(victim, work.ranks, _PATIENCE)
    return victim, moment


def _early(dice: random.Random) -> float:
    """A share of a run: mostly a small one, so that it is disturbed many times while it advances; else any."""
    return min(1.0, dice.expovariate(12)) if dice.random() < 0.75 else dice.random()


def until_end(victim: Victim, ranks: int, seconds: float) -> None:
    """Wait; raises Lost if the command hangs. Ranks are ended as a launcher ends them, when one has died."""
    until = time.monotonic() + seconds
    while not wait(victim, 0.5):
        late = time.monotonic() > until
        if any(victim.codes()) and ranks > 1:
            if not wait(victim, _LAUNCHER):
                end(victim)
            return
        if late:
            end(victim)
            raise Lost(f"hangs: {victim.printed[-500:]}")


def moment_of(notes: Path) -> str:
    """The kind of file that was about to change."""
    text = notes.read_text().split("\n")[0] if notes.exists() else ""
    if not text:
        return "never"
    path = text.partition(" ")[2]
    return next((name for part, name in _FILES.items() if part in path), "another file" if "." in path else "folder")


def last_lines(victim: Victim, how: str) -> Iterator[str]:
    """The last line of each command that was not killed; raises Lost if it is not for people."""
    text = victim.printed
    if any(sign in text for sign in ("Traceback", "internal error", "Logging error", "frame #")):
        raise Lost(f"a traceback at {how}: {text[-1500:]}")
    # " failed: " is a line of ablate
    messages = [line for line in text.splitlines() if line.startswith("csml: ") or " failed: " in line]
    if any(code is not None and code > 0 for code in victim.codes()):
        if not messages:
            raise Lost(f"no line says what happened at {how}: {text[-500:]}")
        yield f"{how}: {messages[-1]}"


def progress(out: Path) -> Iterator[tuple[Path, tuple[int, int]]]:
    """Epoch and step of the newest checkpoint in every folder, all of which must load."""
    for folder in sorted(out.rglob("checkpoints")):
        try:
            found = load_newest(folder)
        except CsmlError as error:
            raise Lost(f"a checkpoint is damaged: {error}") from error
        if found is not None:
            yield folder, (found[1]["epoch"], found[1]["step"])
