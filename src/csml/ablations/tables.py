"""Several ablations on one page: every table with its command, commit, seeds and minutes, and its plot."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from csml.ablations.outcomes import table_of
from csml.api.run import PathLike, paths_of
from csml.api.settings import plain_config
from csml.config import TablesConfig
from csml.console import show_log
from csml.errors import CsmlError, did_you_mean
from csml.files import atomic_write, read_object

_EXPLANATION = (
    "`csml tables` wrote the tables below from the results of `csml ablate`. Accuracies are in percent, mean ± "
    "standard deviation over seeds; `paper` is the paper's figure for this row, on ImageNet with a ResNet-50."
)

_NEEDED = ("title", "command", "runs", "seeds", "machine", "summary", "failed")
"""What a table is made of, in results.json."""


@show_log()
def tables(folders: PathLike | Sequence[PathLike], *, config: PathLike | None = None, **settings: Any) -> Path:
    """Put the tables and plots of finished ablations on one page, each with its command, commit and minutes.

    Args:
        folders: directories written by `ablate`.
        config: a YAML file of settings.
        settings: any setting of `csml tables --help`.

    Returns:
        The page, in Markdown.
    """
    made = tables_config(config=config, **settings)
    places = paths_of(folders, "folders")
    if not places:
        raise CsmlError("folders: an empty list; give at least one --out of csml ablate")
    introduction = Path(made.introduction).expanduser() if made.introduction else None
    if introduction is not None and not introduction.is_file():
        raise CsmlError(f"introduction: there is no file {introduction}{did_you_mean(introduction)}")
    output = Path(made.output).expanduser()
    write_page([place.expanduser() for place in places], output, made.title, introduction)
    return output


def tables_config(folders: Any = None, *, config: PathLike | None = None, **settings: Any) -> TablesConfig:
    """The settings that `tables` would run with, checked; `folders` is ignored."""
    return plain_config(TablesConfig, settings, config)


def write_page(folders: list[Path], output: Path, title: str, introduction: Path | None = None) -> None:
    """Write the page; plots outside its folder are copied into a folder of its name."""
    parts = [f"# {title}"]
    if introduction is not None:
        parts.append(introduction.read_text("utf-8").strip())
    parts.append(_EXPLANATION)
    images = output.with_suffix("")
    for number, folder in enumerate(folders, start=1):
        outcome = _read(folder)
        heading = ", ".join(part for part in (outcome["title"], outcome.get("scale")) if part)
        parts += [
            f"## Table {number}: {heading}",
            _facts(outcome),
            "```\n" + outcome["command"] + "\n```",
            table_of(outcome),
        ]
        note = folder / "note.md"
        if note.exists():
            parts.append(note.read_text("utf-8").strip())
        if (folder / "plot.png").exists():
            drawn = folder / "plot.png"
            if not drawn.resolve().is_relative_to(output.resolve().parent):  # copy it to the page
                images.mkdir(parents=True, exist_ok=True)
                drawn = Path(shutil.copyfile(drawn, images / f"{folder.name}.png"))
            parts.append(f"![{heading}]({os.path.relpath(drawn.resolve(), output.resolve().parent)})")
    output.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(output) as temporary:
        temporary.write_text("\n\n".join(part.rstrip("\n") for part in parts) + "\n", "utf-8")


def _read(folder: Path) -> dict[str, Any]:
    path = folder / "results.json"
    if not path.exists():
        raise CsmlError(f"{folder}: there is no results.json; give the --out of a finished csml ablate")
    found = read_object(path)
    if missing := [key for key in _NEEDED if key not in found]:
        raise CsmlError(f"{path} is not of csml ablate: it has no {missing[0]!r}")
    return found


def _facts(outcome: dict[str, Any]) -> str:
    """Seeds, time and version, and failed runs."""
    minutes = sum(run.get("minutes", 0.0) for run in outcome["runs"])
    seeds = ", ".join(map(str, outcome["seeds"]))
    judged = outcome.get("commit") or "unknown"
    trained = dict.fromkeys(run.get("commit", judged) for run in outcome.get("history", []))
    commits = ", ".join(commit[:12] for commit in trained if commit) or judged[:12]
    setting = f"{outcome['setting']}. " if outcome.get("setting") else ""
    cost = f" {minutes:.0f} minutes of pre-training;" if minutes else ""
    text = f"{setting}Seeds {seeds};{cost} commit {commits}; {outcome['machine']}."
    return text + "".join(f" {name} failed: {problem}." for name, problem in outcome["failed"].items())
