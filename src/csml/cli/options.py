"""Command lines: the options of a command are the settings of its schema, and so is its help."""

import argparse
import ast
import functools
import inspect
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_origin

from csml.config.build import Leaf, convert, expected, is_optional, kind_of, leaves, sections
from csml.config.fields import shown
from csml.config.layers import COMMAND_LINE, unknown_key
from csml.config.sources import Sources
from csml.config.yaml_files import load_yaml
from csml.errors import CsmlError

_YES_OR_NO = ("true", "false", "yes", "no", "on", "off")


@dataclass(frozen=True)
class Positional:
    """An argument without a name."""

    name: str
    help: str
    many: bool = False
    """takes all words that are left; only the last positional can"""
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
        if {"-h", "--help"} & set(words):
            print(self.help(), end="")
            sys.exit(0)
        named, loose = self._split(words)
        own = {name: convert(kind, named.pop(name), name) for name, (kind, _) in self._own().items() if name in named}
        given = {name for name in (*self.flags, "overwrite", "print_config") if own.pop(name, None)}
        return Parsed(
            settings=named,
            positional=self._positional(loose),
            overwrite="overwrite" in given,
            print_config="print_config" in given,
            flags=frozenset(given & set(self.flags)),
            **own,
        )

    def help(self) -> str:
        """All options with their help, grouped by section."""
        parser = argparse.ArgumentParser(
            usage=_plain(self.usage), description=_plain(self.summary), add_help=False, formatter_class=_Formatter
        )
        if self.positional:
            arguments = parser.add_argument_group("arguments")
            for positional in self.positional:
                arguments.add_argument(positional.name, metavar=positional.name.upper(), help=_plain(positional.help))
        group = parser.add_argument_group("options")
        group.add_argument("-h", "--help", action="store_true", help="Show this help and exit.")
        for name, (kind, text) in self._own().items():
            metavar = "" if kind is bool else {"config": "FILE", "resume": "RUN"}.get(name, "NAME")
            group.add_argument(f"--{name.replace('_', '-')}", metavar=metavar, help=_plain(text))
        groups = {"": parser.add_argument_group("settings")}
        for key, section in sections(self.schema).items():
            groups[key] = parser.add_argument_group(key, _plain(inspect.cleandoc(section.__doc__ or "")))
        for leaf in leaves(self.schema).values():
            group = groups[leaf.key.rpartition(".")[0]]
            group.add_argument(f"--{leaf.key}", metavar=_metavar(leaf.kind), help=_plain(_described(leaf)))
        return parser.format_help()

    def _own(self) -> dict[str, tuple[Any, str]]:
        """Type and help of the options that are not settings."""
        own: dict[str, tuple[Any, str]] = {"config": (str, "A YAML file of settings, laid over the preset.")}
        if self.presets:
            own["preset"] = (str, f"Named settings: {', '.join(self.presets)}.")
        if self.resume:
            own["resume"] = (str, "Continue the run in this directory exactly where it stopped.")
        if self.overwrite:
            own["overwrite"] = (bool, "Delete the contents of --out first.")
        own |= {name: (bool, text) for name, text in self.flags.items()}
        return own | {"print_config": (bool, "Print all settings as YAML and exit; --config reads them.")}

    def _split(self, words: list[str]) -> tuple[dict[str, Any], list[str]]:
        """Values of options by name, and the words without an option."""
        kinds = {leaf.key: leaf.kind for leaf in leaves(self.schema).values()}
        kinds |= {name: kind for name, (kind, _) in self._own().items()}
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
            if kinds[key] is Sources and key in named:  # given several times: several sources
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
            raise CsmlError(f"unexpected argument {shown(left[0])}; usage: {self.usage}")
        return found


class _Formatter(argparse.HelpFormatter):
    """Does not break names at their hyphens."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)


def _following(kind: Any, left: list[str], key: str) -> str:
    """The value of an option that is the next word; an option for true or false needs none."""
    if kind_of(kind) is bool:
        allowed = (*_YES_OR_NO, "null") if is_optional(kind) else _YES_OR_NO
        return left.pop() if left and left[-1].lower() in allowed else "true"
    if not left or left[-1].startswith("--"):
        raise CsmlError(f"{key}: expected {expected(kind)} after --{key}")
    return left.pop()


def _read(kind: Any, word: str) -> Any:
    """The value that a word means for a type; a word that means nothing remains a string, which the type refuses."""
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


def _described(leaf: Leaf) -> str:
    """Documentation, bounds and default of a setting."""
    notes = [leaf.rule.phrase()] if leaf.rule is not None else []
    if leaf.default is not None:
        notes.append(f"default: {shown(leaf.default)}")
    text = documentation(leaf.owner).get(leaf.key.rpartition(".")[2], "")
    return f"{text} ({'; '.join(notes)})" if notes else text


def _metavar(kind: Any) -> str:
    kind = kind_of(kind)
    if get_origin(kind) is Literal:
        return "{" + ",".join(map(str, get_args(kind))) + "}"
    if get_origin(kind) is tuple:
        return "LIST"
    return {int: "N", float: "X", bool: "{true,false}"}.get(kind, "TEXT")


def documentation(schema: type[Any]) -> dict[str, str]:
    """The docstrings of all fields of a dataclass, those of its base classes too."""
    found: dict[str, str] = {}
    for kind in reversed(schema.__mro__[:-1]):
        found |= _module_documentation(kind.__module__).get(kind.__qualname__, {})
    return found


@functools.cache
def _module_documentation(name: str) -> dict[str, dict[str, str]]:
    """The docstrings below the fields of the classes of a module: `{class: {field: text}}`."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[name]))
    except (OSError, TypeError):  # the source is not there
        return {}
    found: dict[str, dict[str, str]] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            texts = found.setdefault(node.name, {})
            for before, after in zip(node.body, node.body[1:], strict=False):
                if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name):
                    text = after.value.value if _is_docstring(after) else ""  # type: ignore[attr-defined]
                    if text:
                        texts[before.target.id] = " ".join(text.split())
    return found


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _plain(text: str) -> str:
    """Text for argparse, which would fill in what follows a %."""
    return text.replace("%", "%%")
