"""Networks in and out of files: ours as safetensors, anyone's checkpoint, without executing pickled code."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torchvision.models.resnet import ResNet

from csml.config.detection import DetectConfig, DetectorConfig
from csml.config.schema import BackboneConfig, ImagesConfig
from csml.data.cache import atomic_write, checksum
from csml.errors import CsmlError, reason, some
from csml.models.backbones import BACKBONES, ONLY_HERE, build_backbone
from csml.models.classifier import Classifier
from csml.models.detectors import Detector, build_detector
from csml.views.augment import MEAN, STD
from csml.weights.layouts import recognise, torchvision_names
from csml.weights.reading import read_tensors

_BACKBONE, _CLASSIFIER, _DETECTOR = "backbone.safetensors", "classifier.safetensors", "detector.safetensors"


def save_backbone(path: Path, backbone: ResNet, model: BackboneConfig, images: ImagesConfig) -> None:
    """Write the network without its heads under torchvision's names, and how to feed it."""
    _save(path, backbone, _facts(model, images))


def save_classifier(
    path: Path, classifier: Classifier, model: BackboneConfig, images: ImagesConfig, classes: tuple[str, ...]
) -> None:
    """Write a network that tells classes apart, how to feed it, and the names of the classes."""
    _save(path, classifier, {**_facts(model, images), "classes": classes})


def load_backbone(path: str | Path) -> ResNet:
    """The pre-trained network in eval mode: images `(B, 3, H, W)` → pooled features `(B, C)`.

    Args:
        path: a run directory, its backbone.safetensors, or a checkpoint of another trainer (.pth, .pt, .ckpt,
            .safetensors), whose architecture is recognised from its shapes.

    The network is torchvision's, under torchvision's names, with `fc` replaced by the identity.
    """
    tensors = torchvision_names(read_tensors(_file(path, _BACKBONE)))
    network = _network(path, weight_facts(path), tensors)
    net = build_backbone(network.backbone, network.small_images)
    _fill(net, tensors, f"{path} does not fit {network.backbone}")
    return net.eval()


def network_of(path: str | Path) -> BackboneConfig:
    """Which network the weights belong to."""
    facts = weight_facts(path)
    return _network(path, facts, {} if facts else torchvision_names(read_tensors(_file(path, _BACKBONE))))


def _network(path: str | Path, facts: dict[str, Any], tensors: dict[str, Tensor]) -> BackboneConfig:
    """What a file of ours says of itself, else what the shapes tell."""
    if facts:
        return BackboneConfig(facts["backbone"], facts["small_images"])
    name = recognise(tensors)
    if name in ONLY_HERE:
        raise CsmlError(
            f"{path}: of a {name}, only the files that csml writes for use say all that is needed; give its run"
        )
    if name is None:
        raise CsmlError(f"{path} is none of the networks known here: {', '.join(BACKBONES)}")
    return BackboneConfig(name, small_images=tensors["conv1.weight"].shape[-1] == 3)


def load_classifier(path: str | Path) -> tuple[Classifier, dict[str, Any]]:
    """The network of a run of `csml finetune`, `mine` or `supervised`, in eval mode, and its facts: classes, size, …"""
    file = _file(path, _CLASSIFIER)
    facts = weight_facts(file)
    if "classes" not in facts:
        raise CsmlError(f"{path} tells no classes apart; give a run of csml finetune, mine or supervised")
    classifier = Classifier(build_backbone(facts["backbone"], facts["small_images"]), len(facts["classes"]))
    tensors = read_tensors(file)
    _fill(classifier, tensors, f"{path} does not fit {facts['backbone']}")
    return classifier.eval(), facts


def save_detector(path: Path, detector: Detector, config: DetectConfig, classes: tuple[str, ...], masks: bool) -> None:
    """Write a detector, how to feed it, and the names of its classes."""
    network = {"backbone": config.model.backbone, "small_images": config.model.small_images}
    sizes = {"test_side": config.scenes.test_side, "max_side": config.scenes.max_side, "mean": MEAN, "std": STD}
    _save(path, detector, {**network, **sizes, "detector": asdict(config.detector), "masks": masks, "classes": classes})


def finds_objects(path: str | Path) -> bool:
    """Whether it is the run, or the file, of a detector rather than of a classifier."""
    path = Path(path).expanduser()
    file = path / _DETECTOR if path.is_dir() else path
    return file.exists() and "detector" in weight_facts(file)


def load_detector(path: str | Path) -> tuple[Detector, dict[str, Any]]:
    """The detector of a run of `csml detect`, in eval mode, and its facts: classes, test_side, …

    It takes a list of images `(3, h, w)`, uint8 or in [0, 1], of any size, and returns for each its boxes, labels from
    1, scores, and masks.
    """
    file = _file(path, _DETECTOR)
    facts = weight_facts(file)
    if "detector" not in facts:
        raise CsmlError(f"{path} finds no objects; give a run of csml detect")
    settings: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in facts["detector"].items()
    }
    net = build_backbone(facts["backbone"], facts["small_images"])
    detector = build_detector(net, DetectorConfig(**settings), len(facts["classes"]), facts["masks"])
    _fill(detector, read_tensors(file), f"{path} does not fit {facts['backbone']}")
    detector.sides = (facts["test_side"], facts["max_side"])
    return detector.eval(), facts


def weight_facts(path: str | Path) -> dict[str, Any]:
    """How a file of ours wants to be fed (size, eval_crop, …); empty for others' files. Reads no weights."""
    file = _file(path, _BACKBONE)
    if file.suffix != ".safetensors":
        return {}
    try:
        with safe_open(file, framework="pt") as opened:
            facts: dict[str, Any] = json.loads((opened.metadata() or {}).get("csml", "{}"))
    except Exception as error:
        raise CsmlError(f"{file} cannot be read as weights ({reason(error)})") from error
    return facts


def weights_digest(path: str | Path) -> str:
    """A hash of the weight file, which tells results of other weights."""
    return checksum(_file(path, _BACKBONE))[:20]


def _facts(model: BackboneConfig, images: ImagesConfig) -> dict[str, Any]:
    return {
        "backbone": model.backbone,
        "small_images": model.small_images,
        "size": images.size,
        "eval_crop": images.eval_crop,
        "mean": MEAN,
        "std": STD,
    }


def _save(path: Path, network: nn.Module, facts: dict[str, Any]) -> None:
    tensors = {name: value.detach().contiguous().cpu() for name, value in network.state_dict().items()}
    with atomic_write(path) as temporary:
        save_file(tensors, temporary, metadata={"csml": json.dumps(facts)})


def _fill(network: nn.Module, tensors: dict[str, Tensor], problem: str) -> None:
    """Load what the network needs; CsmlError that lists what is missing, of another shape, or left over."""
    wanted = network.state_dict()
    tensors = dict(tensors)
    for key in wanted:  # old checkpoints do not count batches
        if key.endswith("num_batches_tracked"):
            tensors.setdefault(key, torch.zeros((), dtype=torch.long))
    missing = [key for key in wanted if key not in tensors]
    wrong = [key for key in wanted if key in tensors and tensors[key].shape != wanted[key].shape]
    if missing or wrong:
        unexpected = [key for key in tensors if key not in wanted]
        lists = [("missing", missing), ("of another shape", wrong), ("unexpected", unexpected)]
        told = [f"{len(names)} {what} ({some(names)})" for what, names in lists if names]
        raise CsmlError(f"{problem}: {'; '.join(told)}")
    network.load_state_dict({key: tensors[key] for key in wanted})


def _file(path: str | Path, name: str) -> Path:
    path = Path(path).expanduser()
    if path.is_dir():
        path = path / name
    if not path.exists():
        raise CsmlError(f"there are no weights at {path}; give a run directory or a weight file")
    return path
