"""What `csml knn` and `csml linear` share: which weights, which data, where the result goes."""

from pathlib import Path
from typing import Any, TypeVar

import yaml

from csml.config.checks import check_images
from csml.config.parsing import SettingsParser
from csml.config.presets import flatten
from csml.data.images import Images
from csml.data.open import open_data
from csml.errors import CsmlError
from csml.evaluation.settings import KnnConfig, LinearConfig

C = TypeVar("C", KnnConfig, LinearConfig)


def parse(
    command: str, schema: type[C], summary: str, arguments: list[str], flags: tuple[str, ...] = ()
) -> tuple[str, C, Any]:
    """Weights, settings and flags; data and image settings default to those the weights were trained with."""
    if {"-h", "--help"} & set(arguments):
        _parser(command, schema, summary, flags).settings(arguments)
    chosen = _parser(command, schema, summary, flags).first_look(arguments)
    parser = _parser(command, schema, summary, flags)
    known = parser.known_options()
    defaults = {key: value for key, value in _trained_with(Path(chosen.weights)).items() if f"--{key}" in known}
    parser.set_defaults(defaults)
    settings = parser.settings(arguments)
    config = parser.build(settings, schema)
    check_images(config.images)
    return settings.weights, config, settings


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
    """Dotted settings of the run the weights belong to, or what a weight file of ours says of itself."""
    from csml.weights import weight_facts

    weights = weights.expanduser()
    config = weights / "config.yaml"
    if config.exists():
        return flatten(yaml.safe_load(config.read_text("utf-8")))
    facts = weight_facts(weights)
    return {f"images.{key}": facts[key] for key in ("size", "eval_crop") if key in facts}
