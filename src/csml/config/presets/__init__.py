"""Presets: small YAML files that override the defaults.

A base preset such as `demo` is CsMl on momentum contrast. Its variants (twins), such as `demo-moco-v2` or
`demo-csml-byol`, add the file of a framework, and single.yaml to leave out what CsMl adds. Settings under `twins` in a
base override those files. `sections_of` names the base whose sections for other commands a base shares. The first line
of a file is a comment on the purpose of the preset; `csml presets` shows it.
"""

from importlib.resources import files
from typing import Any

from csml.config.frameworks import DEFAULT_FRAMEWORK, FRAMEWORKS
from csml.config.layers import flatten, lay_over
from csml.config.yaml_files import load_yaml
from csml.errors import CsmlError

BASES = (
    "demo",
    "drawings",
    "photos",
    "photos-gpu",
    "photos-scratch",
    "cifar10-cpu",
    "cifar10",
    "imagenet-200ep",
    "imagenet-300ep",
    "imagenet-800ep",
)
AUTO = "auto"
"""Stands for the preset that is chosen from the images and the machine."""
TWINS: dict[str, tuple[str, ...]] = {
    twin: names for framework in FRAMEWORKS.values() for twin, names in framework.twins().items()
}
"""Suffixes of presets, each with the files that override the base, in order."""
PRESETS: tuple[str, ...] = (*BASES, *(f"{base}-{twin}" for base in BASES for twin in TWINS))
SECTIONS = ("linear", "supervised", "finetune", "mine")
"""Sections of a preset that belong to other commands than pretrain."""
DETECT_PRESETS: tuple[str, ...] = ("small-c4", "small-fpn", "voc-c4", "coco-fpn-1x", "coco-fpn-2x")
"""Presets of `csml detect`."""


def preset_settings(name: str, section: str | None = None) -> dict[str, Any]:
    """The settings of a preset by dotted key, e.g. `{"images.size": 32}`.

    Args:
        name: one of PRESETS.
        section: a command of SECTIONS; by default the settings are those of pre-training.
    """
    _require(name, PRESETS)
    base = _base(name)
    settings = _read(base)
    other = settings.pop("sections_of", None)
    if section is not None:
        return flatten((_read(other) if other else settings).get(section, {}))
    settings = {key: value for key, value in settings.items() if key not in SECTIONS}
    own = settings.pop("twins", {})
    for file in _twin_files(name):
        settings = lay_over(lay_over(settings, _read(file)), own.get(file, {}))
    return flatten(_of_framework(settings, settings.get("framework", DEFAULT_FRAMEWORK)))


def _base(name: str) -> str:
    return max((base for base in BASES if name.startswith(base)), key=len)


def _twin_files(name: str) -> tuple[str, ...]:
    """The files that turn the base of a preset into the preset, in order."""
    return TWINS.get(name[len(_base(name)) + 1 :], ())


def _of_framework(settings: dict[str, Any], chosen: str) -> dict[str, Any]:
    """Without the sections of other frameworks."""
    return {key: value for key, value in settings.items() if key == chosen or key not in FRAMEWORKS}


def settings_from_weights(framework: str, preset: str | None = None) -> dict[str, Any]:
    """The settings for a start from weights, by dotted key; they override every preset of pre-training.

    Args:
        framework: of the run.
        preset: its preset. Variants such as `photos-moco-v2` remain the method that they are named after.
    """
    settings = _read("weights")
    own = settings.pop("twins", {})
    for file in (framework, *(() if preset is None else _twin_files(preset))):
        settings = lay_over(settings, own.get(file, {}))
    return flatten(_of_framework(settings, framework))


def detect_preset(name: str) -> dict[str, Any]:
    """The settings of a preset of `csml detect` by dotted key."""
    _require(name, DETECT_PRESETS)
    return flatten(_read(f"detect/{name}"))


def about_preset(file: str) -> str:
    """The first line of a preset's file, such as `demo` or `detect/voc-c4`: what it is for."""
    return _text(file).split("\n", 1)[0].removeprefix("# ")


def _require(name: str, names: tuple[str, ...]) -> None:
    if name not in names:
        bases = [base for base in BASES if base in names] or names
        raise CsmlError(f"preset: {name!r} is unknown; choose one of {', '.join(bases)}; csml presets explains them")


def _read(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = load_yaml(_text(name))
    return loaded


def _text(name: str) -> str:
    return (files(__package__) / f"{name}.yaml").read_text("utf-8")
