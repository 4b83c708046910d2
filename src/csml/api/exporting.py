"""`csml.export` and `csml.pack`: a backbone for other libraries, and a folder of images as a few large files."""

import logging
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from csml.api.run import PathLike, Run, path_of, paths_of, run_in_use
from csml.api.settings import given, plain_config
from csml.config import BackboneConfig, ExportConfig, PackConfig
from csml.console import show_log
from csml.data.folders import open_folders
from csml.distributed.world import ALONE
from csml.errors import CsmlError
from csml.models.detectors import Detector
from csml.runs.directory import RunDirectory
from csml.runs.locks import only_writers
from csml.weights import finds_objects, load_backbone, load_classifier, load_detector, network_of, weight_facts
from csml.weights.export import SUFFIXES, check_format, formats_of
from csml.weights.export import export as write_export
from csml.weights.export.files import library_name
from csml.weights.export.onnx_detector import detector_to_onnx

log = logging.getLogger("csml")


class Exported(NamedTuple):
    """A backbone in another library's format."""

    path: Path
    how: str
    """lines of Python, or of a config, that load it"""


@show_log()
def export(
    weights: "Run | PathLike",
    to: str | None = None,
    *,
    part: str | None = None,
    output: PathLike | None = None,
    overwrite: bool = False,
    config: PathLike | None = None,
) -> Exported:
    """Write a backbone, without the heads of pre-training, as another library reads it.

    Args:
        weights: a run, its directory, or a weight file of csml or another trainer.
        to: torchvision, timm, detectron2, onnx, safetensors or huggingface; by default the library of the network.
        part: backbone, classifier or detector; the latter two as onnx only.
        output: file or folder; by default in the run's export folder, or beside the weight file.
        overwrite: replace what is there.
        config: a YAML file of settings.
    """
    made = export_config(config=config, overwrite=overwrite, **given(to=to, part=part, output=output))
    source = Path(str(path_of(weights))).expanduser()
    part = made.part or ("detector" if finds_objects(source) else "backbone")
    net, network, facts = _part(source, part, made.to)
    format = made.to or (formats_of(network)[0] if part == "backbone" else "onnx")
    check_format(network, format)
    folder = RunDirectory(source).export if source.is_dir() else source.parent
    path = Path(made.output).expanduser() if made.output else folder / _file_name(network, part, format)
    if path.exists() and not made.overwrite:
        raise CsmlError(f"output: {path} exists; choose another, or give --overwrite")
    path.parent.mkdir(parents=True, exist_ok=True)
    with run_in_use(str(source)):
        if isinstance(net, Detector):
            how = detector_to_onnx(net, facts, path)
        else:
            how = write_export(net, network, facts, format, path)
    log.info("written to %s; to load it:", path)
    return Exported(path, how)


def _file_name(network: BackboneConfig, part: str, format: str) -> str:
    """Network, part and format, each named once: resnet50-timm.safetensors, resnet50-classifier.onnx."""
    name, suffix = library_name(network) + ("" if part == "backbone" else f"-{part}"), SUFFIXES[format]
    return f"{name}{suffix}" if suffix == f".{format}" else f"{name}-{format}{suffix}"


def _part(source: Path, part: str, to: str | None) -> tuple[nn.Module, BackboneConfig, dict[str, Any]]:
    """The module to export, its architecture and its metadata."""
    if part == "backbone":
        return load_backbone(source), network_of(source), weight_facts(source)
    if to not in (None, "onnx"):
        raise CsmlError(f"part: a {part} is exported as onnx only, not as {to}; give --to onnx")
    load = load_detector if part == "detector" else load_classifier
    net, facts = load(source)
    return net, BackboneConfig(facts["backbone"], facts["small_images"]), facts


def export_config(weights: Any = None, *, config: PathLike | None = None, **settings: Any) -> ExportConfig:
    """The settings that `export` would run with, checked; `weights` is ignored."""
    return plain_config(ExportConfig, settings, config)


@show_log()
def pack(folder: PathLike, *, config: PathLike | None = None, **settings: Any) -> Path:
    """Pack a folder of images into a few large files with random access, for network disks and object stores.

    Args:
        folder: images; train/ and val/ inside are packed as such.
        config: a YAML file of settings.
        settings: any setting of `csml pack --help`.

    Returns:
        The pack, which every verb accepts as `data`.
    """
    from csml.data.packed import INDEX, write_pack

    made = pack_config(config=config, **settings)
    (root,) = [path.expanduser() for path in paths_of([folder], "folder")]
    target = Path(made.output or f"{root.absolute()}-pack").expanduser()
    if (target / INDEX).exists():
        raise CsmlError(f"output: {target} is a pack already; choose another, or delete it")
    splits = open_folders(root, made.images)
    try:
        with only_writers(ALONE, target):
            size = write_pack(splits, target, int(made.shard_mb * 2**20))
    except OSError as error:
        raise CsmlError(f"output: cannot write {error.filename or target} ({error.strerror})") from error
    count = sum(len(images) for images in splits.values())
    log.info("%s images, %.1f MB in %s", f"{count:,}", size / 1e6, target)
    return target


def pack_config(folder: Any = None, *, config: PathLike | None = None, **settings: Any) -> PackConfig:
    """The settings that `pack` would run with, checked; `folder` is ignored."""
    return plain_config(PackConfig, settings, config)
