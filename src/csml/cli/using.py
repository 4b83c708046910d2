"""What `csml predict`, `embed` and `neighbors` share: weights, and images of which all are looked at."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from csml.config.checks import check_images
from csml.config.parsing import SettingsParser
from csml.config.run_settings import trained_with
from csml.config.schema import NAMED, HardwareConfig, ImagesConfig
from csml.data.images import Images
from csml.data.open import folder_images, is_pack, open_data
from csml.errors import CsmlError


@dataclass
class SearchingConfig:
    """Settings of `embed` and `neighbors`."""

    data: str = "synthetic"
    """A folder, all of whose images are meant, or synthetic, cifar10, cifar100, stl10 (their training images)."""
    images: ImagesConfig = field(default_factory=ImagesConfig)
    hardware: HardwareConfig = field(default_factory=HardwareConfig)


C = TypeVar("C")


def parse(
    command: str, schema: type[C], summary: str, usage: str, arguments: list[str], more: str = "", help: str = ""
) -> tuple[Any, C]:
    """Weights and settings; data and image settings default to those the weights were trained with.

    `more`: name of the positional arguments after the weights, none if empty, with their `help`.
    """

    def parser() -> SettingsParser:
        made = SettingsParser(command, schema, summary, usage)
        made.add_argument("weights", type=str, help="A run directory or a weight file, ours or another trainer's.")
        if more:
            made.add_argument(more, type=str, nargs="+", help=help)
        return made

    if {"-h", "--help"} & set(arguments):
        parser().settings(arguments)
    chosen = parser().first_look(arguments)
    filled = parser()
    options = filled.known_options()
    known = {key: value for key, value in trained_with(Path(chosen.weights)).items() if f"--{key}" in options}
    filled.start_from(known, origin=chosen.weights)
    settings = filled.settings(arguments)
    return settings, filled.build(settings, schema)


def all_images(config: SearchingConfig) -> Images:
    """Every image below a folder, with labels where it consists of class folders; or a training set."""
    check_images(config.images)
    if config.data in NAMED or is_pack(config.data):
        return open_data(config.data, config.images).train
    root = Path(config.data).expanduser()
    if not root.is_dir():
        raise CsmlError(f"data: there is no folder {root}; give a folder of images or one of {', '.join(NAMED)}")
    return folder_images(root, config.images, classes=None)
