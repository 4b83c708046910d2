"""Bounds: one declaration gives the check, the message and the help."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import pytest

import csml.config as config_package
from csml.config import PretrainConfig, Settings, check, configure
from csml.config.build import kind_of, leaves
from csml.config.fields import (
    Each,
    Interval,
    Range,
    bounded,
    choice,
    each,
    interval,
    require,
    rule_of,
    share,
    shown,
    subset,
)
from csml.errors import CsmlError

SCHEMAS = [
    kind
    for name, kind in vars(config_package).items()
    if isinstance(kind, type) and issubclass(kind, Settings) and dataclasses.is_dataclass(kind)
]


@dataclass(frozen=True)
class Inner(Settings):
    low: int = bounded(1, low=1)
    high: int = bounded(2, low=1)

    def check(self) -> None:
        require(self.low <= self.high, "low", f"at most high, which is {self.high}, not {self.low}")


@dataclass(frozen=True)
class Example(Settings):
    epochs: int = bounded(200, low=1, limit=1000)
    temperature: float = bounded(0.2, above=0)
    momentum: float = bounded(0.9, low=0, below=1)
    gray: float = share(0.2)
    hidden: int | None = bounded(None, low=1)
    side: int = bounded(32, low=8, unit="pixels")
    keep: float = bounded(1.0, above=0, high=1)
    crop_scale: tuple[float, float] | None = interval(None, above=0, high=1)
    k: tuple[int, ...] = each((20,), low=1)
    milestones: tuple[int, ...] = each((), low=1, empty=True)
    stages: tuple[int, ...] = subset((2, 3, 4), of=(1, 2, 3, 4))
    name: str = choice("a", ("a", "b"))
    inner: Inner = Inner()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("epochs", 0, "epochs: at least 1, not 0"),
        ("epochs", 10**9, "epochs: at most 1000, not 1000000000"),
        ("temperature", 0.0, "temperature: above 0, not 0"),
        ("temperature", math.nan, "temperature: above 0, not nan"),
        ("temperature", math.inf, "temperature: above 0, not inf"),
        ("momentum", 1.0, "momentum: at least 0 and below 1, not 1"),
        ("gray", 2.0, "gray: between 0 and 1, not 2"),
        ("gray", -math.inf, "gray: between 0 and 1, not -inf"),
        ("hidden", 0, "hidden: at least 1, not 0"),
        ("side", 2, "side: at least 8 pixels, not 2"),
        ("keep", 0.0, "keep: above 0 and at most 1, not 0"),
        ("crop_scale", (0.5, 0.2), "crop_scale: two numbers a ≤ b above 0 and at most 1, not [0.5, 0.2]"),
        ("crop_scale", (0.0, 0.2), "crop_scale: two numbers a ≤ b above 0 and at most 1, not [0, 0.2]"),
        ("crop_scale", (math.nan, 1.0), "crop_scale: two numbers a ≤ b above 0 and at most 1, not [nan, 1]"),
        ("k", (), "k: one or more numbers, each at least 1, not []"),
        ("k", (5, 0), "k: numbers, each at least 1, not [5, 0]"),
        ("k", (1,) * 2000, "k: at most 1000 numbers, not [1, 1, "),
        ("milestones", (0,), "milestones: numbers, each at least 1, not [0]"),
        ("stages", (2, 5), "stages: some of 1, 2, 3, 4, each once, not [2, 5]"),
        ("stages", (4, 4), "stages: some of 1, 2, 3, 4, each once, not [4, 4]"),
        ("stages", (), "stages: some of 1, 2, 3, 4, each once, not []"),
        ("name", "c", "name: one of a, b, not c"),
        ("inner", Inner(low=0), "inner.low: at least 1, not 0"),
        ("inner", Inner(low=5), "inner.low: at most high, which is 2, not 5"),
    ],
)
def test_a_value_outside_of_its_bounds_is_named_with_what_would_be_right(key: str, value: Any, message: str) -> None:
    with pytest.raises(CsmlError) as caught:
        check(dataclasses.replace(Example(), **{key: value}))
    assert str(caught.value).startswith(message)


def test_good_values_pass() -> None:
    check(Example())
    check(Example(hidden=1, crop_scale=(0.5, 0.5), milestones=(3, 4), gray=1.0, keep=1.0, momentum=0.0))


def test_the_phrase_of_a_rule_is_its_message() -> None:
    assert Range(low=0).phrase() == "0 or more"
    assert Range(low=0, unit="pixels").phrase() == "0 pixels or more"
    assert Range(low=0, high=0.5).phrase() == "between 0 and 0.5"
    assert Interval(Range(above=0, limit=100)).phrase() == "two numbers a ≤ b above 0"
    assert Interval(Range(above=0, limit=100)).problem((1, 1000)) == "two numbers a ≤ b at most 100"
    assert Each(Range(above=0, below=1), empty=True).phrase() == "numbers, each above 0 and below 1"


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda kind: kind.__name__)
def test_every_number_of_every_command_has_a_lower_and_an_upper_bound(schema: type[Any]) -> None:
    for leaf in leaves(schema).values():
        kind = kind_of(leaf.kind)
        numbers = kind in (int, float) or any(item in (int, float) for item in getattr(kind, "__args__", ()))
        if numbers:
            assert leaf.rule is not None, leaf.key
            assert leaf.rule.problem(_like(kind, 1e300)), leaf.key
            assert leaf.rule.problem(_like(kind, -1e300)), leaf.key


def _like(kind: Any, number: float) -> Any:
    return (number, number) if getattr(kind, "__args__", ()) else number


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda kind: kind.__name__)
def test_the_defaults_of_every_command_pass_and_cannot_be_changed(schema: type[Any]) -> None:
    config = schema()
    check(config)
    for field in dataclasses.fields(config):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(config, field.name, None)


def test_long_and_strange_values_are_shown_in_one_short_line() -> None:
    bomb: Any = "x"
    for _ in range(200):
        bomb = [bomb] * 10
    endless: list[Any] = []
    endless.append(endless)
    for value in ("a\nb" * 1000, "\0", "", bomb, endless, {"a": bomb}, [1] * 10**6, None, True):
        assert 0 < len(shown(value)) <= 161 and "\n" not in shown(value)


def test_a_rule_is_found_on_its_field() -> None:
    rules = {field.name: rule_of(field) for field in dataclasses.fields(Example)}
    assert rules["epochs"] == Range(low=1, limit=1000)
    assert rules["inner"] is None


def test_cross_field_rules_name_their_full_key() -> None:
    with pytest.raises(CsmlError, match=r"^optimizer\.milestones: these need --optimizer\.schedule steps"):
        configure(PretrainConfig, {"optimizer.milestones": [3]})
