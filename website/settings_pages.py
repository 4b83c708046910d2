"""Pages of the reference that are written from the code: every setting of every command, and the run directory."""

import importlib
import inspect
import re
from collections.abc import Iterable
from typing import Any

from csml.cli.commands import COMMANDS, Command
from csml.config import PretrainConfig
from csml.config.build import Leaf, leaves, sections
from csml.config.documentation import described

_GENERAL = "general"


def pretrain_page() -> str:
    """All settings of `csml pretrain`, by section."""
    by_section = _by_section(PretrainConfig)
    parts = [
        "# Settings of pretrain",
        "Written from the classes of `csml.config`. On the command line a setting is `--neighbors.k 5`, in Python "
        '`neighbors={"k": 5}`, in a YAML file `neighbors: {k: 5}`. The defaults are the paper\'s; a '
        "[preset](../settings.md) lays others over them.",
    ]
    classes = sections(PretrainConfig)
    for section, settings in by_section.items():
        about = inspect.cleandoc(classes[section].__doc__ or "") if section in classes else ""
        parts += [f"## {section}", _text(about), _table(settings)]
    return _page(parts)


def commands_page() -> str:
    """The settings of the other commands; what is as in `csml pretrain` is not repeated."""
    parts = [
        "# Settings of the other commands",
        "Written from the classes of `csml.config`. Settings with the same meaning and default as in "
        "[pretrain](pretrain.md) are named and not repeated. Images and hardware are by default those of the run "
        "that a command uses.",
    ]
    for command in COMMANDS.values():
        if command.schema is not PretrainConfig:
            parts += _command(command)
    return _page(parts)


def run_directory_page() -> str:
    """The files of a run directory, as its module lists them."""
    about = inspect.getdoc(importlib.import_module("csml.runs.directory")) or ""
    title, _, files = about.partition("\n\n")
    return _page(["# Run directory", _text(title), f"```\n{files}\n```"])


def _command(command: Command) -> list[str]:
    usual = {key: _meaning(leaf) for key, leaf in leaves(PretrainConfig).items()}
    known = list(leaves(command.schema).values())
    same = [leaf for leaf in known if usual.get(leaf.key) == _meaning(leaf)]
    own = [leaf for leaf in known if leaf not in same]
    parts = [f"## {command.name}", _text(command.summary), f"```\n{command.options().usage}\n```"]
    if own:
        parts.append(_table(own))
    if same:
        parts.append("As in pretrain: " + ", ".join(f"`{leaf.key}`" for leaf in same) + ".")
    return parts


def _meaning(leaf: Leaf) -> str:
    """What two commands must have in common to be described once; the page says which sections are inherited."""
    return described(leaf._replace(default_text=None) if "." in leaf.key else leaf)


def _by_section(schema: type[Any]) -> dict[str, list[Leaf]]:
    found: dict[str, list[Leaf]] = {_GENERAL: []}
    for leaf in leaves(schema).values():
        found.setdefault(leaf.key.rpartition(".")[0] or _GENERAL, []).append(leaf)
    return found


def _table(settings: Iterable[Leaf]) -> str:
    rows = [f"| `{leaf.key}` | {_text(described(leaf)).replace('|', chr(92) + '|')} |" for leaf in settings]
    return "\n".join(["| setting | meaning |", "|---|---|", *rows])


def _text(text: str) -> str:
    """Plain text as Markdown: stars, underscores and angle brackets stand for themselves outside of `code`."""
    pieces = " ".join(text.split()).split("`")
    return "`".join(piece if place % 2 else re.sub(r"([*_<>])", r"\\\1", piece) for place, piece in enumerate(pieces))


def _page(parts: Iterable[str]) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"
