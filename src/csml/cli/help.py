"""The help of a command: the common settings, or all settings by section."""

import argparse
import inspect
import textwrap
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args, get_origin

from csml.config.build import Leaf, kind_of, leaves, sections
from csml.config.documentation import described

ALL = "all"
_FEW = 12
"""A command with at most this many settings shows them all."""


class Entry(NamedTuple):
    """A line of the help other than a setting: a positional argument, or an option such as --preset."""

    name: str
    metavar: str
    help: str


def common_settings(schema: type[Any]) -> list[Leaf]:
    """The common settings, those without a section first; all settings if there are few."""
    known = sorted(leaves(schema).values(), key=lambda leaf: "." in leaf.key)
    return known if len(known) <= _FEW else [leaf for leaf in known if leaf.common]


def topics(schema: type[Any]) -> tuple[str, ...]:
    """The values of `--help`: all, and the sections."""
    return (ALL, *sections(schema))


def help_text(
    command: str,
    usage: str,
    summary: str,
    arguments: Sequence[Entry],
    options: Sequence[Entry],
    schema: type[Any],
    topic: str | None,
) -> str:
    """The output of `--help`.

    Args:
        command: its name.
        usage: a line such as `csml knn WEIGHTS [--KEY VALUE …]`.
        summary: what it does.
        arguments: positional arguments.
        options: options that are not settings.
        schema: the settings.
        topic: `all` settings, those of one section, or None for the common ones.
    """
    parser = argparse.ArgumentParser(
        usage=_plain(usage), description=_plain(summary), add_help=False, formatter_class=_Formatter
    )
    if topic in (None, ALL):
        if arguments:
            group = parser.add_argument_group("arguments")
            for entry in arguments:
                group.add_argument(entry.name, metavar=entry.metavar, help=_plain(entry.help))
        group = parser.add_argument_group("options")
        group.add_argument("-h", "--help", action="store_true", help="Show this help; --help all shows every setting.")
        for entry in options:
            group.add_argument(f"--{entry.name.replace('_', '-')}", metavar=entry.metavar, help=_plain(entry.help))
    _add_settings(parser, schema, topic)
    return parser.format_help() + _more(command, schema, topic)


def _add_settings(parser: argparse.ArgumentParser, schema: type[Any], topic: str | None) -> None:
    known = leaves(schema).values()
    if topic is None:
        groups = {"": parser.add_argument_group("settings")}
        for leaf in common_settings(schema):
            _add(groups[""], leaf)
        return
    groups = {"": parser.add_argument_group("settings")} if topic == ALL else {}
    for key, section in sections(schema).items():
        if topic in (ALL, key):
            groups[key] = parser.add_argument_group(key, _plain(inspect.cleandoc(section.__doc__ or "")))
    for leaf in known:
        if (group := groups.get(leaf.key.rpartition(".")[0])) is not None:
            _add(group, leaf)


def _add(group: "argparse._ArgumentGroup", leaf: Leaf) -> None:
    group.add_argument(f"--{leaf.key}", metavar=_metavar(leaf.kind), help=_plain(described(leaf)))


def _more(command: str, schema: type[Any], topic: str | None) -> str:
    """A line about the settings that are not shown."""
    left = len(leaves(schema)) - len(common_settings(schema))
    if topic is not None or not left:
        return ""
    names = ", ".join(sections(schema))
    text = f"{left} more settings: csml {command} --help all, or --help and one of {names}."
    return "\n" + textwrap.fill(text, 78, break_on_hyphens=False, break_long_words=False) + "\n"


class _Formatter(argparse.HelpFormatter):
    """Does not break names at their hyphens."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)


def _metavar(kind: Any) -> str:
    kind = kind_of(kind)
    if get_origin(kind) is Literal:
        return "{" + ",".join(map(str, get_args(kind))) + "}"
    if get_origin(kind) is tuple:
        return "LIST"
    return {int: "N", float: "X", bool: "{true,false}"}.get(kind, "TEXT")


def _plain(text: str) -> str:
    """Text for argparse, with % escaped."""
    return text.replace("%", "%%")
