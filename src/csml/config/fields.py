"""Declarations of settings: one declaration gives a field its default, its check, its error message and its help.

epochs: int = bounded(200, low=1, limit=1_000_000)
crop_scale: tuple[float, float] = interval((0.2, 1.0), above=0, high=1)
backbone: str = choice("resnet50", BACKBONES)
seed: int = common(bounded(0, low=0))

`common` marks the settings that people change most often; `--help` shows these.
"""

import dataclasses
import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar, cast

from csml.errors import CsmlError

T = TypeVar("T")

_RULE = "rule"
_COMMON = "common"
_MOST_ITEMS = 1000
_LONGEST = 160
"""Largest number of characters of a value in a message."""


class Rule(Protocol):
    """A constraint on a value, beyond its type."""

    def problem(self, value: Any) -> str | None:
        """What would be right; None if the value is valid."""

    def phrase(self) -> str:
        """Description of valid values, for the help."""


class Settings:
    """Base class of all settings. Settings are frozen dataclasses: a checked config never changes."""

    default_texts: ClassVar[Mapping[str, str]] = {}
    """What the help says about a default that is not the value in the code, by key or section; {} is that value."""

    def check(self) -> None:
        """Raise CsmlError for inconsistent values; `configure` calls this and completes the key."""


def require(condition: bool, key: str, problem: str) -> None:
    """Raise CsmlError for the key unless the condition holds."""
    if not condition:
        raise CsmlError(f"{key}: {problem}")


@dataclass(frozen=True)
class Range:
    """A finite number within bounds."""

    low: float | None = None
    """smallest allowed value"""
    high: float | None = None
    """largest allowed value"""
    above: float | None = None
    """the value must be larger than this"""
    below: float | None = None
    """the value must be smaller than this"""
    limit: float | None = None
    """largest value that a machine can handle; in messages only, not in the help"""
    unit: str = ""

    def problem(self, value: float) -> str | None:
        inside = (
            (isinstance(value, int) or math.isfinite(value))  # isfinite fails for integers of 400 digits
            and (self.low is None or value >= self.low)
            and (self.above is None or value > self.above)
            and (self.high is None or value <= self.high)
            and (self.below is None or value < self.below)
        )
        if not inside:
            return self.phrase()
        return f"at most {_number(self.limit)}" if self.limit is not None and value > self.limit else None

    def phrase(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        if self.low is not None and self.high is not None:
            return f"between {_number(self.low)} and {_number(self.high)}{unit}"
        lower = f"above {_number(self.above)}" if self.above is not None else ""
        if self.low is not None:
            lower = f"at least {_number(self.low)}"
            if self.low == 0 and self.below is None:
                return f"0{unit} or more"
        upper = f"at most {_number(self.high)}" if self.high is not None else ""
        if self.below is not None:
            upper = f"below {_number(self.below)}"
        return " and ".join(bound for bound in (lower, upper) if bound) + unit


@dataclass(frozen=True)
class Interval:
    """Two numbers a ≤ b within bounds."""

    range: Range

    def problem(self, value: tuple[float, float]) -> str | None:
        if value[0] > value[1]:
            return self.phrase()
        found = self.range.problem(value[0]) or self.range.problem(value[1])
        return found and f"two numbers a ≤ b {found}"

    def phrase(self) -> str:
        return f"two numbers a ≤ b {self.range.phrase()}"


@dataclass(frozen=True)
class Each:
    """A list of numbers, every one within bounds."""

    range: Range
    empty: bool

    def problem(self, value: Sequence[float]) -> str | None:
        if not value and not self.empty:
            return self.phrase()
        if len(value) > _MOST_ITEMS:
            return f"at most {_MOST_ITEMS} numbers"
        found = next((problem for item in value if (problem := self.range.problem(item))), None)
        return found and f"numbers, each {found}"

    def phrase(self) -> str:
        return f"{'' if self.empty else 'one or more '}numbers, each {self.range.phrase()}"


@dataclass(frozen=True)
class Subset:
    """One or more of some numbers, without repetition."""

    of: tuple[int, ...]

    def problem(self, value: Sequence[int]) -> str | None:
        good = len(value) > 0 and len(set(value)) == len(value) and set(value) <= set(self.of)
        return None if good else self.phrase()

    def phrase(self) -> str:
        return f"some of {', '.join(map(str, self.of))}, each once"


@dataclass(frozen=True)
class Choice:
    """One of some names."""

    names: tuple[str, ...]
    prefix: str | None = None
    """a value with this prefix and something after it is valid, too"""

    def problem(self, value: str) -> str | None:
        prefixed = self.prefix is not None and value.startswith(self.prefix) and len(value) > len(self.prefix)
        return None if value in self.names or prefixed else self.phrase()

    def phrase(self) -> str:
        return f"one of {', '.join(self.names)}" + (f", or {self.prefix}NAME" if self.prefix else "")


def bounded(
    default: T,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
    limit: float | None = None,
    unit: str = "",
) -> T:
    """A field that holds a number; the bounds are those of `Range`. None is allowed if the type allows it."""
    return _declared(default, Range(low, high, above, below, limit, unit))


def share(default: T) -> T:
    """A field that holds a probability or a share."""
    return _declared(default, Range(low=0, high=1))


def interval(default: T, *, above: float, high: float | None = None, limit: float | None = None) -> T:
    """A field that holds two numbers a ≤ b."""
    return _declared(default, Interval(Range(above=above, high=high, limit=limit)))


def each(
    default: T,
    *,
    low: float | None = None,
    above: float | None = None,
    below: float | None = None,
    limit: float | None = None,
    unit: str = "",
    empty: bool = False,
) -> T:
    """A field that holds a list of numbers, every one within bounds; `empty`: the list may have no items."""
    return _declared(default, Each(Range(low=low, above=above, below=below, limit=limit, unit=unit), empty))


def subset(default: T, of: tuple[int, ...]) -> T:
    """A field that holds some of a few numbers."""
    return _declared(default, Subset(of))


def choice(default: T, names: tuple[str, ...], or_prefix: str | None = None) -> T:
    """A field that holds one of some names, or a prefix and a name that is checked later.

    For names that are known to a type checker, use `Literal` instead.
    """
    return _declared(default, Choice(names, or_prefix))


def common(default: T) -> T:
    """A field that users often change, declared by another function of this file or by its default value alone."""
    declared: Any = default
    if not isinstance(declared, dataclasses.Field):
        return dataclasses.field(default=default, metadata={_COMMON: True})
    return cast(T, dataclasses.field(default=declared.default, metadata={**declared.metadata, _COMMON: True}))


def is_common(field: "dataclasses.Field[Any]") -> bool:
    """Whether `common` declared it."""
    return bool(field.metadata.get(_COMMON))


def rule_of(field: "dataclasses.Field[Any]") -> Rule | None:
    """The rule that a field was declared with."""
    return cast(Rule | None, field.metadata.get(_RULE))


def check(config: Any, prefix: str = "") -> None:
    """Raise CsmlError for the first value that breaks its field's rule or is inconsistent with the others."""
    for field in dataclasses.fields(config):
        value, rule = getattr(config, field.name), rule_of(field)
        if dataclasses.is_dataclass(value):
            check(value, f"{prefix}{field.name}.")
        elif rule is not None and value is not None and (problem := rule.problem(value)):
            raise CsmlError(f"{prefix}{field.name}: {problem}, not {shown(value)}")
    try:
        config.check()
    except CsmlError as error:
        raise CsmlError(f"{prefix}{error}") from error


def shown(value: Any) -> str:
    """A value for a one-line message, shortened."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int) and value.bit_length() > _LONGEST:
        return f"a number of about {value.bit_length() * 3 // 10} digits"
    if isinstance(value, tuple):
        value = list(value)
    if isinstance(value, list) and len(value) <= _short.maxlist and all(isinstance(i, int | float) for i in value):
        return f"[{', '.join(map(shown, value))}]"
    plain = isinstance(value, str) and value and value.isprintable()
    text = " ".join(str(value if plain else _short.repr(value)).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _declared(default: T, rule: Rule) -> T:
    return dataclasses.field(default=default, metadata={_RULE: rule})


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:g}"


_short = reprlib.Repr()
_short.maxlevel, _short.maxlist, _short.maxstring, _short.maxother = 3, 20, _LONGEST, _LONGEST
