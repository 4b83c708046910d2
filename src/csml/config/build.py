"""Converts plain Python or YAML values to typed settings."""

import dataclasses
import os
import types
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, Literal, NamedTuple, TypeVar, Union, cast, get_args, get_origin

from csml.config.fields import Rule, is_common, rule_of, shown
from csml.config.sources import Sources, join_sources
from csml.errors import CsmlError

C = TypeVar("C")


class Leaf(NamedTuple):
    """A setting that is not a section."""

    key: str
    """dotted"""
    kind: Any
    """its type"""
    default: Any
    rule: Rule | None
    owner: type[Any]
    """the dataclass that has the field"""
    common: bool
    """whether the short `--help` shows it"""
    default_text: str | None = None
    """what the help says about the default instead of its value, which is {} in it"""

    @property
    def name(self) -> str:
        """the key without its section"""
        return self.key.rpartition(".")[2]


def leaves(schema: type[Any]) -> dict[str, Leaf]:
    """All settings of a schema by their dotted keys."""
    return {leaf.key: leaf._replace(default_text=_default_text(schema, leaf.key)) for leaf in _leaves(schema(), "")}


def _default_text(schema: type[Any], key: str) -> str | None:
    """What the schema says about the default of a key, or of the section that it is in."""
    texts = schema.default_texts
    return next((texts[name] for name in (key, key.rpartition(".")[0]) if name in texts), None)


def sections(schema: type[Any]) -> dict[str, type[Any]]:
    """The sections of a schema by their dotted keys."""
    found: dict[str, type[Any]] = {}
    for field in dataclasses.fields(schema):
        if dataclasses.is_dataclass(field.type):
            kind = cast(type[Any], field.type)
            found |= {field.name: kind, **{f"{field.name}.{key}": inner for key, inner in sections(kind).items()}}
    return found


def build(schema: type[C], given: Mapping[str, Any]) -> C:
    """The schema's defaults, overridden by the given settings (by dotted key); every value is converted."""
    known = leaves(schema)
    values = {key: convert(known[key].kind, value, key) for key, value in given.items()}
    return _replaced(schema(), values)


def convert(kind: Any, value: Any, key: str) -> Any:
    """The value converted to the type; raises CsmlError if that is impossible."""
    try:
        return _converted(kind, value)
    except _OtherType:
        quotes = (
            " in quotes" if kind_of(kind) in (str, Sources) and value is not None and not _is_container(value) else ""
        )
        raise CsmlError(f"{key}: expected {expected(kind)}{quotes}, got {shown(value)}") from None


def expected(kind: Any) -> str:
    """Description of a type for messages."""
    kind = kind_of(kind)
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(map(str, get_args(kind)))
    if get_origin(kind) is tuple:
        item, end = get_args(kind)
        if end is not Ellipsis:
            return "two numbers such as [0.2, 1]"
        return {int: "a list such as [3, 4]", float: "a list such as [0.5, 0.75]", str: "a list such as [a, b]"}[item]
    return {int: "a whole number", float: "a number", bool: "true or false", str: "text", Sources: "text"}[kind]


def kind_of(kind: Any) -> Any:
    """The type without `| None`."""
    return next(arg for arg in get_args(kind) if arg is not types.NoneType) if is_optional(kind) else kind


def is_optional(kind: Any) -> bool:
    return get_origin(kind) in (types.UnionType, Union) and types.NoneType in get_args(kind)


class _OtherType(Exception):
    pass


def _converted(kind: Any, value: Any) -> Any:
    if is_optional(kind):
        return None if value is None else _converted(kind_of(kind), value)
    if get_origin(kind) is Literal:
        return _one_of(get_args(kind), value)
    if get_origin(kind) is tuple:
        return _items(get_args(kind), value)
    return {int: _whole, float: _real, bool: _bool, str: _text, Sources: _sources}[kind](value)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise _OtherType
    return int(value)


def _real(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real | str):  # YAML reads 1e-4 as a string
        raise _OtherType
    try:
        return float(value)
    except (ValueError, OverflowError):
        raise _OtherType from None


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _OtherType
    return value


def _text(value: Any) -> str:
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str) or not text or "\0" in text:
        raise _OtherType
    try:
        os.fsencode(text)
    except UnicodeEncodeError:  # a lone surrogate is not valid text
        raise _OtherType from None
    return text


def _sources(value: Any) -> str:
    return join_sources(map(_text, value)) if isinstance(value, list | tuple) else _text(value)


def _one_of(names: tuple[Any, ...], value: Any) -> Any:
    for name in names:
        same_type = type(name) is type(value) or (isinstance(name, str) and type(value) is int)  # YAML: voc_points: 11
        if same_type and str(value) == str(name):
            return name
    raise _OtherType


def _items(kinds: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    if kinds[0] is str and isinstance(value, str | os.PathLike):  # a single name is a list of one
        value = [value]
    if not isinstance(value, list | tuple):
        raise _OtherType
    if kinds[1] is Ellipsis:
        return tuple(_converted(kinds[0], item) for item in value)
    if len(value) != len(kinds):
        raise _OtherType
    return tuple(_converted(kind, item) for kind, item in zip(kinds, value, strict=True))


def _is_container(value: Any) -> bool:
    return isinstance(value, Mapping | list | tuple | set | str | bytes)


def _leaves(config: Any, prefix: str) -> list[Leaf]:
    found: list[Leaf] = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            found += _leaves(value, f"{prefix}{field.name}.")
        else:
            found.append(
                Leaf(f"{prefix}{field.name}", field.type, value, rule_of(field), type(config), is_common(field))
            )
    return found


def _replaced(config: C, values: Mapping[str, Any]) -> C:
    own = {key: value for key, value in values.items() if "." not in key}
    inner: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        section, dot, rest = key.partition(".")
        if dot:
            inner.setdefault(section, {})[rest] = value
    changed = {section: _replaced(getattr(config, section), given) for section, given in inner.items()}
    return cast(C, dataclasses.replace(cast(Any, config), **own, **changed))
