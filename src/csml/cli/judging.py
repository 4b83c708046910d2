"""What `csml knn` and `csml linear` share: which weights, which data, where the result goes."""

from pathlib import Path
from typing import Any, TypeVar

import yaml

from csml.config.parsing import SettingsParser
from csml.config.presets import flatten
from csml.config.protocols import KnnConfig, LinearConfig
from csml.data.images import Images
from csml.data.open import open_data
from csml.errors import CsmlError
from csml.weights import weight_facts

_INHERITED = ("data", "images.", "hardware.")
C = TypeVar("C", KnnConfig, LinearConfig)


def parse(
    command: str, schema: type[C], summary: str, arguments: list[str], flags: tuple[str, ...] = ()
) -> tuple[str, C, Any]:
    """Weights, settings and flags; data and image settings default to those the weights were trained with."""
    if {"-h", "--help"} & set(arguments):
        _parser(command, schema, summary, flags).settings(arguments)
    chosen = _parser(command, schema, summary, flags).first_look(arguments)
    parser = _parser(command, schema, summary, flags)
    parser.start_from(_trained_with(Path(chosen.weights)), origin=chosen.weights)
    settings = parser.settings(arguments)
    return settings.weights, parser.build(settings, schema), settings


def labeled_splits(config: KnnConfig | LinearConfig) -> tuple[Images, Images]:
    """Training and test images with labels, or an error that says what is missing."""
    data = open_data(config.data, config.images)
    if data.labeled is None or data.val is None:
        raise CsmlError(f"data: {config.data} has no labels to judge by; one folder per class gives them")
    return data.labeled, data.val


def result_path(weights: str, output: str | None, name: str) -> Path:
    """`output`, else RUN/name, else name beside the weight file."""
    if output:
        return Path(output).expanduser()
    path = Path(weights).expanduser()
    return (path if path.is_dir() else path.parent) / name


def _parser(command: str, schema: type[Any], summary: str, flags: tuple[str, ...]) -> SettingsParser:
    parser = SettingsParser(command, schema, summary, f"csml {command} WEIGHTS [--data FOLDER] [--KEY VALUE …]")
    help_text = "A run directory, a backbone.safetensors, or a torchvision or MoCo checkpoint."
    parser.add_argument("weights", type=str, help=help_text)
    for flag in flags:
        parser.add_argument(
            f"--{flag}", type=bool, default=False, nargs="?", const=True, help="Continue where it stopped."
        )
    return parser


def _trained_with(weights: Path) -> dict[str, Any]:
    """Data, image and hardware settings of the run they belong to, or what a weight file of ours says of itself."""
    weights = weights.expanduser()
    config = weights / "config.yaml"
    if config.exists():
        settings = flatten(yaml.safe_load(config.read_text("utf-8")))
        return {key: value for key, value in settings.items() if key.startswith(_INHERITED)}
    facts = weight_facts(weights)
    return {f"images.{key}": facts[key] for key in ("size", "eval_crop") if key in facts}
