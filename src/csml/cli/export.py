"""`csml export RUN --to FORMAT`: the backbone for another library."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from csml.config.parsing import SettingsParser
from csml.errors import CsmlError

log = logging.getLogger("csml")


@dataclass
class ExportConfig:
    """Settings of `csml export`."""

    to: Literal["torchvision", "timm", "detectron2", "onnx", "safetensors", "huggingface"] = "torchvision"
    """The library, or format, that will read it. huggingface is a folder as timm models have it on the hub."""
    output: str | None = None
    """File or folder; by default RUN/export/NAME with the format's ending, or beside a weight file."""
    overwrite: bool = False
    """Replace what is there."""


def run(arguments: list[str]) -> int:
    summary = "Write a backbone, without the heads of pre-training, as another library reads it."
    parser = SettingsParser("export", ExportConfig, summary, "csml export WEIGHTS --to FORMAT [--output FILE]")
    parser.add_argument("weights", type=str, help="A run directory or a weight file, ours or another trainer's.")
    settings = parser.settings(arguments)
    config = parser.build(settings, ExportConfig)
    from csml.weights import load_backbone, network_of, weight_facts
    from csml.weights.export import SUFFIXES, export

    network, facts = network_of(settings.weights), weight_facts(settings.weights)
    source = Path(settings.weights).expanduser()
    folder = source / "export" if source.is_dir() else source.parent
    name = f"{network.backbone}-{config.to}{SUFFIXES[config.to]}"
    path = Path(config.output).expanduser() if config.output else folder / name
    if path.exists() and not config.overwrite:
        raise CsmlError(f"output: {path} exists; choose another, or give --overwrite true")
    path.parent.mkdir(parents=True, exist_ok=True)
    how = export(load_backbone(settings.weights), network, facts, config.to, path)
    log.info("written to %s; to load it:", path)
    print(how)
    return 0
