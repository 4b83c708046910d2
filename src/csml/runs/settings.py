"""The settings of runs: written, read, compared, and inherited by the verbs that use a run."""

from pathlib import Path
from typing import Any

import yaml

from csml.config import as_settings, flatten, is_weight_name, read_yaml
from csml.errors import CsmlError
from csml.files import atomic_write
from csml.runs.directory import RunDirectory

OF_THE_MACHINE = (
    "out", "output", "images.workers", "scenes.workers", "hardware.", "checkpoint.", "monitor.", "baselines",
)  # fmt: skip
"""Prefixes of the keys that change the result of a run by rounding at most, or not at all."""
_INHERITED = ("data", "images.", "hardware.")
_OWN = ("hardware.devices", "hardware.accumulate")
"""Keys that are not inherited: a run made on eight GPUs may be used on a laptop."""


def write_config(run: RunDirectory, config: Any) -> None:
    """Write every setting of a config dataclass to config.yaml."""
    with atomic_write(run.config) as temporary:
        temporary.write_text(yaml.safe_dump(as_settings(config), sort_keys=False))


def read_settings(root: Path) -> dict[str, Any]:
    """The settings of a run directory as dotted keys."""
    config = RunDirectory(root).config
    settings = read_yaml(config, f"{root} is not a run directory: ")
    if not isinstance(settings, dict):
        raise CsmlError(f"{root} is not a run directory: its {config.name} is empty")
    settings = flatten(settings)
    if settings.get("head_lr_per_256") and "max_entropy" not in settings:
        settings.setdefault("how", "paper")  # a run of finetune from before this setting existed
    if settings.get("hardware.accelerator") == "gpu":
        settings["hardware.accelerator"] = "cuda"  # a run from before this setting was one of three words
    return settings


def first_difference(before: dict[str, Any], now: dict[str, Any]) -> str | None:
    """The first dotted key whose value differs, except settings of the machine.

    A key missing in `before` is ignored: the run is older than the setting.
    """
    keys = [key for key in before if not key.startswith(OF_THE_MACHINE)]
    return next((key for key in keys if before[key] != now.get(key)), None)


def refuse_others(root: Path, config: Any, besides: tuple[str, ...] = ()) -> None:
    """Raise if a run directory was made with other settings; keys with a prefix in `besides` may differ."""
    theirs, ours = (
        {key: value for key, value in settings.items() if not key.startswith(besides)}
        for settings in (read_settings(root), flatten(as_settings(config)))
    )
    if key := first_difference(theirs, ours):
        values = f"{key} {theirs.get(key)}, and it is {ours.get(key)} now"
        raise CsmlError(f"{root} was made with {values}; give another --out, or delete it")


def trained_with(weights: Path, more: tuple[str, ...] = ()) -> dict[str, Any]:
    """Settings to inherit from weights: data, images, hardware and the keys `more` of a run directory, or the image
    size recorded in a weight file of csml."""
    weights = weights.expanduser()
    if not is_weight_name(str(weights)) and RunDirectory(weights).config.exists():
        return inherited(read_settings(weights), more)
    from csml.weights import weight_facts  # imports torch, which takes seconds; most callers have a run directory

    facts = weight_facts(weights)
    return {f"images.{key}": facts[key] for key in ("size", "eval_size", "eval_crop", "channels") if key in facts}


def inherited(settings: dict[str, Any], more: tuple[str, ...] = ()) -> dict[str, Any]:
    """The settings of a run, as dotted keys, that are defaults of a verb using the run."""
    return {
        key: value for key, value in settings.items() if (key.startswith(_INHERITED) and key not in _OWN) or key in more
    }
