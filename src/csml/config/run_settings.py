"""The settings of runs that exist: read, compared, inherited by the commands that use the run."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from csml.config.presets import flatten
from csml.errors import CsmlError

OF_THE_MACHINE = ("out", "output", "images.workers", "scenes.workers", "hardware.", "checkpoint.", "monitor.")
"""Beginnings of the keys that do not change what comes out of a run beyond rounding."""
_INHERITED = ("data", "images.", "hardware.")
_OWN = ("hardware.devices", "hardware.accumulate")
"""What a command that uses a run decides anew: a run of eight GPUs is looked at on a laptop."""


def read_settings(run: Path) -> dict[str, Any]:
    """config.yaml of a run directory as dotted keys."""
    try:
        settings = yaml.safe_load((run / "config.yaml").read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CsmlError(f"{run} is not a run directory: its config.yaml cannot be read") from error
    if not isinstance(settings, dict):
        raise CsmlError(f"{run} is not a run directory: its config.yaml is empty")
    return flatten(settings)


def settings_of(config: Any) -> dict[str, Any]:
    """Plain nested values of a config, tuples as lists: what YAML and JSON can hold."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        return list(value) if isinstance(value, tuple) else value

    settings: dict[str, Any] = plain(asdict(config))
    return settings


def first_difference(before: dict[str, Any], now: dict[str, Any]) -> str | None:
    """A key whose value is another now, those of the machine aside."""
    keys = [key for key in (*now, *before) if not key.startswith(OF_THE_MACHINE)]
    return next((key for key in keys if before.get(key) != now.get(key)), None)


def refuse_others(run: Path, config: Any, besides: tuple[str, ...] = ()) -> None:
    """Raise where a run directory was made with other settings; keys that begin with `besides` may differ."""
    theirs, ours = (
        {key: value for key, value in settings.items() if not key.startswith(besides)}
        for settings in (read_settings(run), flatten(settings_of(config)))
    )
    if key := first_difference(theirs, ours):
        now = f"with {key} {theirs.get(key)}, and it is {ours.get(key)} now"
        raise CsmlError(f"{run} was made {now}; give another --out, or delete it")


def trained_with(weights: Path, more: tuple[str, ...] = ()) -> dict[str, Any]:
    """Data, image and hardware settings (and `more`) of the run the weights belong to, or what a weight file of ours
    says of itself."""
    weights = weights.expanduser()
    if (weights / "config.yaml").exists():
        return inherited(read_settings(weights), more)
    from csml.weights import weight_facts  # here: it takes torch to read a weight file, which takes seconds to import

    facts = weight_facts(weights)
    return {f"images.{key}": facts[key] for key in ("size", "eval_crop") if key in facts}


def inherited(settings: dict[str, Any], more: tuple[str, ...] = ()) -> dict[str, Any]:
    """What the commands that use a run take from its settings."""
    return {
        key: value for key, value in settings.items() if (key.startswith(_INHERITED) and key not in _OWN) or key in more
    }
