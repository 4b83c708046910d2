"""Merges layers of settings: defaults, preset, file, keywords, command line."""

import dataclasses
import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from csml.config.build import build, leaves, sections
from csml.config.fields import check, shown
from csml.errors import CsmlError

C = TypeVar("C")

COMMAND_LINE = "command line"
"""The origin for which messages write keys as --key."""
_ALIKE = 0.66
"""Smallest share of letters that a mistyped key must have in common with the right one: out and output just pass."""
_LONGEST_KEY = 100
"""Number of letters of a key beyond which no similar one is looked for: the time to compare grows with its square."""


@dataclass(frozen=True)
class Layer:
    """Settings and where they come from."""

    settings: Mapping[str, Any]
    """nested, with dotted keys, or both"""
    origin: str = ""
    """named in the message about an unknown key, e.g. `config.yaml` or `preset demo`"""


def configure(schema: type[C], *layers: Layer | Mapping[str, Any]) -> C:
    """The schema's defaults, overridden by the layers in order; converted and checked.

    Raises:
        CsmlError: one line that names the dotted key and what would be right.
    """
    walk = _Walk(schema)
    given: dict[str, Any] = {}
    for layer in layers:
        named = layer if isinstance(layer, Layer) else Layer(layer)
        given.update(walk(named.settings, named.origin))
    config = build(schema, given)
    check(config)
    return config


def as_settings(config: Any) -> dict[str, Any]:
    """Plain nested values of a config for YAML and JSON, tuples as lists."""

    def plain(value: Any) -> Any:
        if dataclasses.is_dataclass(value):
            return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return list(value) if isinstance(value, tuple) else value

    settings: dict[str, Any] = plain(config)
    return settings


def field_keys(schema: type[Any]) -> set[str]:
    """All settings of a schema as dotted keys."""
    return set(leaves(schema))


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as nested settings."""
    tree: dict[str, Any] = {}
    for key, value in flat.items():
        *path, name = key.split(".")
        branch = tree
        for section in path:
            branch = branch.setdefault(section, {})
        branch[name] = value
    return tree


def lay_over(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Nested settings, overridden by others."""
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = lay_over(below, value) if isinstance(value, Mapping) and isinstance(below, Mapping) else value
    return merged


def unknown_key(key: str, known: list[str], origin: str) -> CsmlError:
    """The error for a key that does not exist, with the keys that were probably meant."""
    dashes, kind = ("--", "option") if origin == COMMAND_LINE else ("", "key")
    where = f"{origin}: " if origin and origin != COMMAND_LINE else ""
    *others, last = [f"{dashes}{other}" for other in suggestions(key, known)] or [""]
    hint = f"; did you mean {', '.join(others)}{' or ' if others else ''}{last}?" if last else ""
    return CsmlError(f"{where}unknown {kind} {dashes}{shown(key)}{hint}")


def suggestions(key: str, known: list[str]) -> list[str]:
    """At most three known keys that may have been meant by a key that does not exist.

    A key with a wrong section, or none, stands for the settings of that name: `weights` is `model.weights`. Otherwise
    the most similar name counts, or one with this prefix: `lr` is `optimizer.lr_per_256`.
    """
    if len(key) > _LONGEST_KEY:
        return []
    likeness = {other: _likeness(key, other) for other in known}
    best = max(likeness.values(), default=0.0)
    return [other for other in known if likeness[other] == best > 0][:3]


def _likeness(key: str, other: str) -> float:
    (section, _, name), (other_section, _, other_name) = key.rpartition("."), other.rpartition(".")
    alike = 0.9 if other_name.startswith(f"{name}_") else difflib.SequenceMatcher(None, name, other_name).ratio()
    if alike < _ALIKE:
        return 0.0
    return alike + (difflib.SequenceMatcher(None, section, other_section).ratio() if section else 0.0)


class _Walk:
    """Walks through the layers of one schema; refuses keys that the schema does not have."""

    def __init__(self, schema: type[Any]) -> None:
        self.leaves, self.sections = leaves(schema), sections(schema)

    def __call__(self, tree: Mapping[str, Any], origin: str, prefix: str = "") -> Iterator[tuple[str, Any]]:
        """Dotted keys and values."""
        for name, value in tree.items():
            key = f"{prefix}{name}"
            if key in self.leaves:
                yield key, value
            elif key not in self.sections:
                raise unknown_key(key, [*self.leaves, *self.sections], origin)
            elif dataclasses.is_dataclass(value):
                yield from self(as_settings(value), origin, f"{key}.")
            elif isinstance(value, Mapping):
                yield from self(value, origin, f"{key}.")
            elif value is not None:  # in YAML an empty section is null
                first = next(other for other in self.leaves if other.startswith(f"{key}."))
                raise CsmlError(f"{key}: expected settings such as {first}, got {shown(value)}")
