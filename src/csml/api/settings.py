"""The settings of a verb, merged in the same order for Python and the command line.

Defaults, settings of the weights it starts from, preset (or the resumed run), config file, keywords.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

from csml.api.run import SCHEMAS, PathLike, Run, path_of
from csml.config import (
    RANDOM,
    ClassifierConfig,
    KnnConfig,
    Layer,
    LinearConfig,
    ModelConfig,
    absolute_sources,
    as_settings,
    configure,
    field_keys,
    flatten,
    is_weight_name,
    read_config_file,
)
from csml.data.open import IN_MEMORY
from csml.errors import CsmlError
from csml.runs.metadata import verb_of
from csml.runs.opening import open_run
from csml.runs.settings import first_difference, read_settings, trained_with

C = TypeVar("C")

_USES_LABELS = (KnnConfig, LinearConfig, ClassifierConfig)
"""A run may learn from a sample of the images; all labels are used unless the caller sets a sample again."""
_NO_IMAGES = "data: {} does not say which images it is for; give --data FOLDER"
_PATHS = ("data", "weights", "labels", "list")
"""Settings that are paths; they become absolute, so that a run can be continued and evaluated from any directory."""


def training_config(
    schema: type[C],
    presets: Callable[[str], dict[str, Any]],
    inherits: tuple[str, ...] | None = (),
    *,
    preset: str | None = None,
    config: PathLike | None = None,
    resume: "Run | PathLike | None" = None,
    chosen: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
    needs_data: bool = False,
    **settings: Any,
) -> C:
    """Settings of a verb that trains, checked.

    Args:
        schema: its dataclass.
        presets: the settings that the name of a preset stands for.
        inherits: keys, besides data, images and hardware, that default to those of the run the weights belong to;
            None: nothing is inherited.
        preset: name of a preset.
        config: a YAML file.
        resume: the run to continue; its settings take the place of a preset.
        chosen: function from all given settings, by dotted key, to further settings to lay over the preset.
        needs_data: raise if `data` was not given instead of using its default.
        settings: keywords, nested or dotted; None is a value, as null is on the command line.
    """
    resumed = None if resume is None else _settings_of(schema, resume, preset)
    layers = _first_layers(schema, presets, inherits, preset, settings) if resumed is None else [resumed]
    over = [] if config is None else [_config_layer(config)]
    over.append(Layer(settings, ""))
    if not any("data" in layer.settings for layer in (*layers, *over)):
        if needs_data:
            raise CsmlError("data: give the images, --data FOLDER; or try it with --preset demo, which draws its own")
        weights = str(settings.get("weights") or "")
        if inherits is not None and weights:  # a file, a name, or a run whose settings are missing
            raise CsmlError(_NO_IMAGES.format(weights))
    if chosen is not None:
        everything = {key: value for layer in (*layers, *over) for key, value in flatten(layer.settings).items()}
        layers.append(Layer(chosen(everything)))
    made = with_absolute_paths(configure(schema, *layers, *over))
    if resumed is not None:
        _require_same(configure(schema, resumed), made)
    return made


def _settings_of(schema: type[Any], resume: "Run | PathLike", preset: str | None) -> Layer:
    """The settings of the run to resume."""
    if preset is not None:
        raise CsmlError("preset: a resumed run has its settings; leave the preset out")
    run = open_run(str(path_of(resume)))
    _require_made_by(schema, run.root)
    return Layer(read_settings(run.root), str(run.root))


def _first_layers(
    schema: type[Any],
    presets: Callable[[str], dict[str, Any]],
    inherits: tuple[str, ...] | None,
    preset: str | None,
    settings: Mapping[str, Any],
) -> list[Layer]:
    """The settings inherited from the weights, and those of the preset."""
    layers = []
    if "weights" in settings and inherits is not None:
        layers.append(_inherited(schema, str(settings["weights"]), inherits))
    if preset is not None:
        layers.append(Layer(presets(preset), f"preset {preset}"))
    return layers


def _require_same(before: Any, now: Any) -> None:
    """Raise if a resumed run would train with other settings than before."""
    was, wanted = flatten(as_settings(before)), flatten(as_settings(now))
    if key := first_difference(was, wanted):
        raise CsmlError(
            f"{key}: the run was started with {was.get(key)}, so it cannot be resumed with {wanted.get(key)}"
        )


def using_config(
    schema: type[C],
    weights: PathLike,
    settings: Mapping[str, Any],
    *,
    preset: Mapping[str, Any] | None = None,
    config: PathLike | None = None,
) -> C:
    """Settings of a verb that uses weights; data, images and hardware default to those they were trained with."""
    layers = [_inherited(schema, str(weights), ())]
    if preset:
        layers.append(Layer(preset, "preset"))
    if config is not None:
        layers.append(_config_layer(config))
    layers.append(Layer(settings, ""))
    if "data" in field_keys(schema) and not any("data" in layer.settings for layer in layers):
        raise CsmlError(_NO_IMAGES.format(weights))
    return configure(schema, *layers)


def plain_config(schema: type[C], settings: Mapping[str, Any], config: PathLike | None = None) -> C:
    """Settings of a verb that inherits nothing."""
    layers = [] if config is None else [_config_layer(config)]
    return configure(schema, *layers, Layer(settings, ""))


def _config_layer(config: PathLike) -> Layer:
    if not isinstance(config, str | os.PathLike):
        raise CsmlError(f"config: expected the path of a YAML file, got {config!r:.80}")
    return read_config_file(Path(config))


def given(**parameters: Any) -> dict[str, Any]:
    """The parameters of a verb that the caller gave: those that are not None."""
    return {key: value for key, value in parameters.items() if value is not None}


def with_absolute_paths(config: C) -> C:
    """The same settings with absolute paths; names such as `synthetic` and URLs are unchanged."""
    changed: dict[str, Any] = {}
    for name in {field.name for field in fields(config)} & set(_PATHS):  # type: ignore[arg-type]
        value = getattr(config, name)
        sources = name == "data" and value not in (None, IN_MEMORY)
        changed[name] = absolute_sources(value) if sources else _absolute(value)
    model = getattr(config, "model", None)
    if isinstance(model, ModelConfig):
        changed["model"] = replace(model, weights=_absolute(model.weights))
    return replace(config, **changed)  # type: ignore[type-var]


def _absolute(path: str | None) -> str | None:
    if path is None or path in (RANDOM, IN_MEMORY) or "://" in path or is_weight_name(path):
        return path
    return str(Path(path).expanduser().absolute())


def _require_made_by(schema: type[Any], root: Path) -> None:
    """Raise if the run to resume is of another verb."""
    verb = verb_of(root)
    if SCHEMAS.get(verb) is not schema:
        raise CsmlError(f"resume: {root} was made by csml {verb}; continue it with csml {verb} --resume {root}")


def _inherited(schema: type[Any], weights: str, more: tuple[str, ...]) -> Layer:
    known = field_keys(schema)
    if issubclass(schema, _USES_LABELS):
        known.discard("images.sample")
    settings = trained_with(Path(weights), more)
    return Layer({key: value for key, value in settings.items() if key in known}, weights)
