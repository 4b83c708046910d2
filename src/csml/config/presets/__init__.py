"""Named settings: small YAML files laid over the defaults. Every one has a twin NAME-moco-v2."""

from importlib.resources import files
from typing import Any

import yaml

from csml.errors import CsmlError

_BASES = ("demo", "photos", "cifar10", "imagenet-200ep", "imagenet-800ep")
_TWIN = "-moco-v2"
PRESETS: tuple[str, ...] = tuple(base + suffix for base in _BASES for suffix in ("", _TWIN))


def preset_settings(name: str) -> dict[str, Any]:
    """The settings of a preset as dotted keys, e.g. `{"images.size": 32}`."""
    if name not in PRESETS:
        raise CsmlError(f"preset: {name!r} is unknown; choose one of {', '.join(PRESETS)}")
    settings = flatten(_read(name.removesuffix(_TWIN)))
    if name.endswith(_TWIN):
        settings.update(flatten(_read(_TWIN[1:])))
    return settings


def flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _read(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((files(__package__) / f"{name}.yaml").read_text("utf-8"))
    return loaded
