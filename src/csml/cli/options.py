"""Command lines: the options of a command are the settings of its schema."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_origin

from csml.cli.help import Entry, help_text, topics
from csml.config.build import convert, expected, is_optional, kind_of, leaves, sections
from csml.config.fields import shown
from csml.config.layers import COMMAND_LINE, unknown_key
from csml.config.sources import Sources
from csml.config.yaml_files import load_yaml
from csml.errors import CsmlError

_PRESETS = "Named settings; csml presets lists them."
_YES_OR_NO = ("true", "false", "yes", "no", "on", "off")


@dataclass(frozen=True)
class Positional:
    """An argument without a name."""

    name: str
    help: str
    many: bool = False
    """takes all remaining words; only for the last positional"""
    required: bool = True


@dataclass(frozen=True)
class Parsed:
    """A command line."""

    settings: dict[str, Any]
    """given settings by dotted key"""
    positional: dict[str, str | list[str]]
    """given positional arguments by name"""
    preset: str | None = None
    config: str | None = None
    resume: str | None = None
    overwrite: bool = False
    print_config: bool = False
    flags: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Options:
    """The options of a command."""

    command: str
    schema: type[Any]
    summary: str
    usage: str
    positional: tuple[Positional, ...] = ()
    presets: tuple[str, ...] = ()
    """names for --preset; none: the command has no presets"""
    resume: bool = False
    """whether there is --resume RUN"""
    overwrite: bool = False
    """whether there is --overwrite"""
    flags: Mapping[str, str] = field(default_factory=dict)
    """more options without a value: name and help"""

    def parse(self, words: list[str]) -> Parsed:
        """Read a command line; --help prints the help and exits.

        Raises:
            CsmlError: an unknown option, a missing value or argument. `configure` checks the values themselves.
        """
        if (topic := self._help_topic(words)) is not None:
            print(self.help(topic or None), end="")
            sys.exit(0)
        named, loose = self._split(words)
        own = {name: convert(kind, named.pop(name), name) for name, (kind, _) in self.own().items() if name in named}
        given = {name for name in (*self.flags, "overwrite", "print_config") if own.pop(name, None)}
        return Parsed(
            settings=named,
            positional=self._positional(loose),
            overwrite="overwrite" in given,
            print_config="print_config" in given,
            flags=frozenset(given & set(self.flags)),
            **own,
        )

    def _help_topic(self, words: list[str]) -> str | None:
        """The topic of --help: "" for the common settings; None: --help is not there."""
        for place, word in enumerate(words):
            name, equals, topic = word.partition("=")
            if name in ("-h", "--help"):
                known = topics(self.schema)
                after = "".join(words[place + 1 : place + 2])
                topic = topic if equals else "" if after.startswith("-") else after
                if topic and topic not in known:
                    raise CsmlError(f"help: expected nothing or one of {', '.join(known)} after it, got {shown(topic)}")
                return topic
        return None

    def help(self, topic: str | None = None) -> str:
        """The options and the common settings; `topic`: all settings, or those of one section."""
        metavars = {"config": "FILE", "resume": "RUN"}
        own = [
            Entry(name, "" if kind is bool else metavars.get(name, "NAME"), text)
            for name, (kind, text) in self.own().items()
        ]
        if self.presets and topic is None:
            own = [entry._replace(help=_PRESETS) if entry.name == "preset" else entry for entry in own]
        arguments = [Entry(one.name, one.name.upper(), one.help) for one in self.positional]
        return help_text(self.command, self.usage, self.summary, arguments, own, self.schema, topic)

    def own(self) -> dict[str, tuple[Any, str]]:
        """Type and help of the options that are not settings."""
        own: dict[str, tuple[Any, str]] = {}
        if has_settings := bool(leaves(self.schema)):
            own["config"] = (str, "A YAML file of settings" + (", which override the preset." if self.presets else "."))
        if self.presets:
            own["preset"] = (str, f"Named settings: {', '.join(self.presets)}.")
        if self.resume:
            own["resume"] = (str, "Continue the run in this directory exactly where it stopped.")
        if self.overwrite:
            own["overwrite"] = (bool, "Delete the contents of --out first.")
        own |= {name: (bool, text) for name, text in self.flags.items()}
        if has_settings:
            own["print_config"] = (bool, "Print all settings as YAML and exit; --config reads them.")
        return own

    def _split(self, words: list[str]) -> tuple[dict[str, Any], list[str]]:
        """Values of options by name, and the words without an option."""
        kinds = {leaf.key: leaf.kind for leaf in leaves(self.schema).values()}
        kinds |= {name: kind for name, (kind, _) in self.own().items()}
        named: dict[str, Any] = {}
        loose: list[str] = []
        left = list(reversed(words))
        while left:
            word = left.pop()
            if word == "--":
                loose += reversed(left)
                break
            if not word.startswith("-") or word == "-":
                loose.append(word)
                continue
            name, equals, value = word.removeprefix("--").partition("=")
            key = name.replace("-", "_")
            if key not in kinds or not word.startswith("--"):
                raise self._unknown(word, key, list(kinds))
            if not equals:
                value = _following(kinds[key], left, key)
            read = _read(kinds[key], value)
            if kinds[key] is Sources and key in named:  # given repeatedly: several sources
                read = [*_as_list(named[key]), *_as_list(read)]
            named[key] = read
        return named, loose

    def _unknown(self, word: str, key: str, known: list[str]) -> CsmlError:
        if key in sections(self.schema):
            first = next(other for other in known if other.startswith(f"{key}."))
            return CsmlError(f"{key}: a section; give one of its settings, such as --{first}")
        if not word.startswith("--"):
            return CsmlError(f"unknown option {word}; see csml {self.command} --help")
        error = unknown_key(key, known, COMMAND_LINE)
        return error if "did you mean" in str(error) else CsmlError(f"{error}; see csml {self.command} --help")

    def _positional(self, words: list[str]) -> dict[str, str | list[str]]:
        found: dict[str, str | list[str]] = {}
        left = list(words)
        for positional in self.positional:
            if left:
                found[positional.name] = left if positional.many else left.pop(0)
                left = [] if positional.many else left
            elif positional.required:
                raise CsmlError(f"{positional.name}: missing; usage: {self.usage}")
        if left:
            hint = f"did you mean --data {shown(left[0])}?" if "data" in leaves(self.schema) else f"usage: {self.usage}"
            raise CsmlError(f"unexpected argument {shown(left[0])}; {hint}")
        return found


def _following(kind: Any, left: list[str], key: str) -> str:
    """The value of an option that is the next word; an option for true or false needs none."""
    if kind_of(kind) is bool:
        allowed = (*_YES_OR_NO, "null") if is_optional(kind) else _YES_OR_NO
        return left.pop() if left and left[-1].lower() in allowed else "true"
    if not left or left[-1].startswith("--"):
        raise CsmlError(f"{key}: expected {expected(kind)} after --{key}")
    return left.pop()


def _read(kind: Any, word: str) -> Any:
    """The value of a word for a type; an invalid word remains a string, which the type refuses."""
    if is_optional(kind) and word == "null":
        return None
    kind = kind_of(kind)
    if kind is int:
        try:
            return int(word)  # YAML would read 010 as 8 and 1:30 as 90
        except ValueError:
            return word
    texts = kind in (str, float) or (get_origin(kind) is Literal and isinstance(get_args(kind)[0], str))
    names = (kind is Sources or (get_origin(kind) is tuple and get_args(kind)[0] is str)) and not word.startswith("[")
    if texts or names or not word.strip():
        return word
    try:
        return load_yaml(word)
    except ValueError:
        return word


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
