"""Named settings: small YAML files laid over the defaults. Each is CsMl; its twins are what CsMl is compared with.

NAME-moco-v2: one query, one key, one level. NAME-byol: BYOL. NAME-csml-byol: CsMl on BYOL.
"""

from importlib.resources import files
from typing import Any

import yaml

from csml.errors import CsmlError

BASES = ("demo", "photos", "cifar10-cpu", "cifar10", "imagenet-200ep", "imagenet-300ep", "imagenet-800ep")
TWINS: dict[str, tuple[str, ...]] = {"moco-v2": ("single",), "byol": ("byol", "single"), "csml-byol": ("byol",)}
"""The files that make a twin of a base, laid over it in turn."""
PRESETS: tuple[str, ...] = (*BASES, *(f"{base}-{twin}" for base in BASES for twin in TWINS))


SECTIONS = ("linear", "supervised", "finetune", "mine")
"""Parts of a preset that are for other commands than pretrain."""


DETECT_PRESETS: tuple[str, ...] = ("small-c4", "small-fpn", "voc-c4", "coco-fpn-1x", "coco-fpn-2x")
"""Of `csml detect`, whose settings are of another kind."""


def detect_preset(name: str) -> dict[str, Any]:
    """The settings of a preset of `csml detect` as dotted keys."""
    if name not in DETECT_PRESETS:
        raise CsmlError(f"preset: {name!r} is unknown; choose one of {', '.join(DETECT_PRESETS)}")
    return flatten(_read(f"detect/{name}"))


def preset_settings(name: str, section: str | None = None) -> dict[str, Any]:
    """The settings of a preset as dotted keys, e.g. `{"images.size": 32}`; of pre-training, or of another command's
    section."""
    if name not in PRESETS:
        raise CsmlError(f"preset: {name!r} is unknown; choose one of {', '.join(PRESETS)}")
    base = max((base for base in BASES if name.startswith(base)), key=len)
    settings = _read(base)
    sections = {key: settings.pop(key, {}) for key in SECTIONS}
    if section is not None:
        return flatten(sections[section])
    special = settings.pop("twins", {})  # what a base wants otherwise than the files of its twins
    for file in TWINS.get(name[len(base) + 1 :], ()):
        if file == "byol":
            settings.pop("contrast", None)
        settings = _laid_over(_laid_over(settings, _read(file)), special.get(file, {}))
    return flatten(settings)


def flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _laid_over(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(under)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _laid_over(merged[key], value) if both else value
    return merged


def _read(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((files(__package__) / f"{name}.yaml").read_text("utf-8"))
    return loaded
