"""What `csml knn` and `csml linear` share: which weights, which data, where the result goes."""

import json
from pathlib import Path
from typing import Any, TypeVar

from csml.config.parsing import SettingsParser
from csml.config.presets import PRESETS, SECTIONS, flatten, preset_settings
from csml.config.protocols import KnnConfig, LinearConfig
from csml.config.run_settings import first_difference, inherited, settings_of, trained_with
from csml.config.schema import TrainingConfig
from csml.data.images import Images
from csml.data.open import open_data
from csml.errors import CsmlError
from csml.training.run_directory import write_json
from csml.weights import weights_digest

C = TypeVar("C", KnnConfig, LinearConfig)


def parse(
    command: str, schema: type[C], summary: str, arguments: list[str], flags: tuple[str, ...] = ()
) -> tuple[str, C, Any]:
    """Weights, settings and flags; data and image settings default to those the weights were trained with."""
    if {"-h", "--help"} & set(arguments):
        _parser(command, schema, summary, flags).settings(arguments)
    chosen = _parser(command, schema, summary, flags).first_look(arguments)
    parser = _parser(command, schema, summary, flags)
    parser.start_from(trained_with(Path(chosen.weights)) | _of_preset(command, chosen), origin=chosen.weights)
    settings = parser.settings(arguments)
    return settings.weights, parser.build(settings, schema), settings


def settings_for(command: str, schema: type[C], run: TrainingConfig, words: list[str]) -> C:
    """What `parse` would give for the weights of a run that may not exist yet."""
    arguments = [str(run.out), *words]
    chosen = _parser(command, schema, "", ()).first_look(arguments)
    parser = _parser(command, schema, "", ())
    parser.start_from(inherited(flatten(settings_of(run))) | _of_preset(command, chosen), origin=str(run.out))
    return parser.build(parser.settings(arguments), schema)


def labeled_splits(config: KnnConfig | LinearConfig) -> tuple[Images, Images]:
    """Training and test images with labels, or an error that says what is missing."""
    data = open_data(config.data, config.images)
    if data.labeled is None or data.val is None:
        raise CsmlError(f"data: {config.data} has no labels; one folder per class gives them")
    return data.labeled, data.val


def result_path(weights: str, output: str | None, name: str) -> Path:
    """`output`, else RUN/name, else name beside the weight file."""
    if output:
        return Path(output).expanduser()
    path = Path(weights).expanduser()
    return (path if path.is_dir() else path.parent) / name


def write_result(path: Path, weights: str, config: KnnConfig | LinearConfig, result: dict[str, Any]) -> None:
    """What was found, of which weights, with which settings."""
    facts = {"weights": weights, "digest": weights_digest(weights), "data": config.data}
    write_json(path, {**facts, "settings": settings_of(config), **result})


def is_judged(path: Path, weights: str, config: KnnConfig | LinearConfig) -> bool:
    """Whether there is a result of these very weights with these settings, those of the machine aside."""
    if not path.exists():
        return False
    found = json.loads(path.read_text())
    same = first_difference(flatten(found.get("settings", {})), flatten(settings_of(config))) is None
    return same and found.get("digest") == weights_digest(weights)


def _of_preset(command: str, chosen: Any) -> dict[str, Any]:
    """What the preset that was named says of this command."""
    named = command in SECTIONS and chosen.preset is not None
    return preset_settings(chosen.preset, section=command) if named else {}


def _parser(command: str, schema: type[Any], summary: str, flags: tuple[str, ...]) -> SettingsParser:
    parser = SettingsParser(command, schema, summary, f"csml {command} WEIGHTS [--data FOLDER] [--KEY VALUE …]")
    help_text = "A run directory or a weight file, ours or another trainer's."
    parser.add_argument("weights", type=str, help=help_text)
    if command in SECTIONS:
        parser.add_argument("--preset", type=str | None, default=None, help=f"Named settings: {', '.join(PRESETS)}.")
    for flag in flags:
        parser.add_argument(
            f"--{flag}", type=bool, default=False, nargs="?", const=True, help="Continue where it stopped."
        )
    return parser
