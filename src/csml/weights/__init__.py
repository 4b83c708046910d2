"""Saving networks as safetensors and loading them, also from other trainers' checkpoints, without executing pickles."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from csml.config import (
    BACKBONES,
    PIXELS,
    SMALL,
    TIMM,
    BackboneConfig,
    DetectConfig,
    DetectorConfig,
    ImagesConfig,
    is_weight_name,
)
from csml.errors import CsmlError, did_you_mean, some
from csml.files import atomic_write, checksum
from csml.models import raw_pixels
from csml.models.backbones import Backbone, build_backbone, image_channels, normalization
from csml.models.classifier import Classifier
from csml.models.detectors import Detector, build_detector
from csml.models.first_convolution import with_channels
from csml.run_files import BACKBONE, CLASSIFIER, DETECTOR
from csml.weights.layouts import backbone_tensors, recognise, tensors_named
from csml.weights.metadata import metadata_problem
from csml.weights.named import PACKAGES, load_named, network_by_name, package_file
from csml.weights.reading import read_tensors, require_content, why_unreadable


def save_backbone(path: Path, backbone: Backbone, model: BackboneConfig, images: ImagesConfig) -> None:
    """Write the network without heads, under torchvision's or timm's names, with metadata about its input."""
    _save(path, backbone, _facts(backbone, model, images))


def save_classifier(
    path: Path, classifier: Classifier, model: BackboneConfig, images: ImagesConfig, classes: tuple[str, ...]
) -> None:
    """Write a classifier, with metadata about its input and its class names."""
    facts = {**_facts(classifier.backbone, model, images), "classes": classes}
    _save(path, classifier, facts | {"unit": True} if classifier.unit else facts)


def load_backbone(path: str | Path, channels: int | None = None) -> Backbone:
    """Load a pre-trained network in eval mode: images `(B, C, H, W)` → features `(B, F)`.

    Args:
        path: a run directory, its backbone.safetensors, or a checkpoint of another trainer (.pth, .pt, .ckpt,
            .safetensors), whose architecture is recognised from the shapes of its weights; `timm:NAME`, which timm
            downloads; `lite0`, the weights of an installed package; or, as a baseline, `random:NAME`, an untrained
            network (`random`: a ResNet-18), or `pixels`, the picture at 32×32 pixels.
        channels: C of the images, to which the first convolution is adapted; None: that of the weights, mostly 3.

    Returns:
        torchvision's network with torchvision's names and the identity as `fc`, or timm's network without classifier.
    """
    if is_weight_name(str(path)):
        return load_named(str(path), channels or 3).eval()
    _refuse_detector(path)
    facts, tensors = weight_facts(path), read_tensors(_file(path, BACKBONE))
    if not facts:
        tensors = backbone_tensors(tensors)
    network = _network(path, facts, tensors)
    net = build_backbone(network.backbone, network.small_images, facts.get("channels", 3))
    if facts:
        tensors = tensors_named(tensors, list(net.state_dict()))
    _fill(net, tensors, f"{path} does not fit {network.backbone}")
    return (net if channels is None else with_channels(net, channels)).eval()


def network_of(path: str | Path) -> BackboneConfig:
    """The architecture of the network that the weights belong to."""
    if is_weight_name(str(path)):
        return network_by_name(str(path))
    _refuse_detector(path)
    facts = weight_facts(path)
    return _network(path, facts, {} if facts else backbone_tensors(read_tensors(_file(path, BACKBONE))))


def _network(path: str | Path, facts: dict[str, Any], tensors: dict[str, Tensor]) -> BackboneConfig:
    """The architecture: from the metadata if csml wrote the file, else from the shapes of the weights."""
    if facts:
        return BackboneConfig(facts["backbone"], facts["small_images"])
    name = recognise(tensors)
    if name in SMALL:
        raise CsmlError(
            f"{path} is a checkpoint of {name}, which lacks some settings of the network; give its run directory"
        )
    if name is None:
        raise CsmlError(f"{path} does not match any known network: {', '.join(BACKBONES)}, and the common ones of timm")
    return BackboneConfig(name, small_images=not name.startswith(TIMM) and tensors["conv1.weight"].shape[-1] == 3)


def load_classifier(path: str | Path) -> tuple[Classifier, dict[str, Any]]:
    """Load the classifier of a `csml finetune`, `mine` or `supervised` run in eval mode.

    Returns:
        The classifier and the metadata of its file: classes, size, …
    """
    root = Path(path).expanduser()
    if (root / BACKBONE).exists() and not (root / CLASSIFIER).exists():
        raise CsmlError(f"{path} has no classifier yet; make one: csml finetune {path} --labels FILE --out RUN")
    file = _file(path, CLASSIFIER)
    facts = weight_facts(file)
    if "classes" not in facts:
        raise CsmlError(f"{path} is not a classifier; give a run of csml finetune, mine or supervised")
    net = build_backbone(facts["backbone"], facts["small_images"], facts.get("channels", 3))
    classifier = Classifier(net, len(facts["classes"]), unit=facts.get("unit", False))
    tensors = read_tensors(file)
    _fill(classifier, tensors, f"{path} does not fit {facts['backbone']}")
    return classifier.eval(), facts


def save_detector(
    path: Path,
    detector: Detector,
    config: DetectConfig,
    classes: tuple[str, ...],
    masks: bool,
    min_score: float | None = None,
) -> None:
    """Write a detector, with metadata about its input and its class names.

    Args:
        path: file to write.
        detector: the network.
        config: the settings it was trained with.
        classes: names.
        masks: whether it has masks.
        min_score: the score threshold with the best F1, if known.
    """
    network = {"backbone": config.model.backbone, "small_images": config.model.small_images}
    sizes = {"test_side": config.scenes.test_side, "max_side": config.scenes.max_side}
    sizes |= {"mean": detector.transform.image_mean, "std": detector.transform.image_std}
    known = {} if min_score is None else {"min_score": min_score}
    built = {"detector": asdict(config.detector), "masks": masks, "classes": classes}
    _save(path, detector, {**network, **sizes, **built, **known})


def finds_objects(path: str | Path) -> bool:
    """Whether `path` is the run or the file of a detector (and not of a classifier)."""
    path = Path(path).expanduser()
    file = path / DETECTOR if path.is_dir() else path
    return file.exists() and "detector" in weight_facts(file)


def load_detector(path: str | Path) -> tuple[Detector, dict[str, Any]]:
    """Load the detector of a `csml detect` run in eval mode.

    It takes a list of images `(3, h, w)`, uint8 or in [0, 1], of any size, and returns boxes, labels (from 1), scores
    and masks for each.

    Returns:
        The detector and the metadata of its file: classes, test_side, …
    """
    if not finds_objects(path):
        file = _file(path, BACKBONE)  # raises if there are no weights at all
        kind = "a classifier" if "classes" in weight_facts(file) else "a backbone"
        raise CsmlError(f"{path} is {kind}, not a detector; give a run of csml detect, or make one: csml detect {path}")
    file = _file(path, DETECTOR)
    facts = weight_facts(file)
    settings: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in facts["detector"].items()
    }
    net = build_backbone(facts["backbone"], facts["small_images"], facts.get("channels", 3))
    detector = build_detector(net, DetectorConfig(**settings), len(facts["classes"]), facts["masks"])
    _fill(detector, read_tensors(file), f"{path} does not fit {facts['backbone']}")
    detector.sides = (facts["test_side"], facts["max_side"])
    return detector.eval(), facts


def _refuse_detector(path: str | Path) -> None:
    """Raise if a detector was given instead of a backbone."""
    root = Path(path).expanduser()
    if finds_objects(root) and not (root.is_dir() and (root / BACKBONE).exists()):
        raise CsmlError(
            f"{path} is a detector, not a backbone; give the weights it was trained from, or use it with csml predict"
        )


def weight_facts(path: str | Path) -> dict[str, Any]:
    """The metadata that csml writes into weight files (backbone, size, eval_crop, …), without loading the weights.

    Empty for weights that csml did not write.
    """
    if str(path) == PIXELS:
        return {"size": raw_pixels.SIDE, "eval_crop": 1.0}
    if is_weight_name(str(path)):
        return {}
    file = _file(path, BACKBONE)
    if file.suffix != ".safetensors":
        return {}
    try:
        require_content(file)
        with safe_open(file, framework="pt") as opened:
            facts = json.loads((opened.metadata() or {}).get("csml", "{}"))
    except Exception as error:
        raise CsmlError(f"{file} cannot be read as weights ({why_unreadable(error)})") from error
    if problem := metadata_problem(facts):
        raise CsmlError(f"{file}: its metadata is not of csml, or damaged: {problem}")
    return cast(dict[str, Any], facts)


def weights_digest(path: str | Path) -> str:
    """A hash of the weights, to recognise results of other weights."""
    name = str(path)
    if name in PACKAGES:
        return checksum(package_file(name))[:20]
    return name if is_weight_name(name) else checksum(_file(path, BACKBONE))[:20]


def _facts(backbone: Backbone, model: BackboneConfig, images: ImagesConfig) -> dict[str, Any]:
    return {
        "backbone": model.backbone,
        "small_images": model.small_images,
        "size": images.size,
        "eval_size": images.center_size,
        "eval_crop": images.eval_crop,
        "channels": image_channels(backbone),
        **normalization(backbone)._asdict(),
    }


def _save(path: Path, network: nn.Module, facts: dict[str, Any]) -> None:
    tensors = {name: value.detach().contiguous().cpu() for name, value in network.state_dict().items()}
    with atomic_write(path) as temporary:
        save_file(tensors, temporary, metadata={"csml": json.dumps(facts)})


def _fill(network: nn.Module, tensors: dict[str, Tensor], problem: str) -> None:
    """Load the tensors into the network, or raise a CsmlError that lists missing, mismatched and unexpected names."""
    wanted = network.state_dict()
    tensors = dict(tensors)
    for key in wanted:  # missing in old checkpoints
        if key.endswith("num_batches_tracked"):
            tensors.setdefault(key, torch.zeros((), dtype=torch.long))
    missing = [key for key in wanted if key not in tensors]
    wrong = [key for key in wanted if key in tensors and tensors[key].shape != wanted[key].shape]
    if missing or wrong:
        unexpected = [key for key in tensors if key not in wanted]
        lists = [("missing", missing), ("of another shape", wrong), ("unexpected", unexpected)]
        details = [f"{len(names)} {what} ({some(names)})" for what, names in lists if names]
        raise CsmlError(f"{problem}: {'; '.join(details)}")
    network.load_state_dict({key: tensors[key] for key in wanted})


def _file(path: str | Path, name: str) -> Path:
    given = Path(path).expanduser()
    file = given / name if given.is_dir() else given
    if not file.exists():
        meant = did_you_mean(given, "give a run directory or a weight file")
        raise CsmlError(f"there are no weights at {file}{meant}")
    return file
