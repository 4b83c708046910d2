"""Backbones in and out of files: ours as safetensors, anyone's state dict, without executing pickled code."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from torchvision.models.resnet import ResNet

from csml.config.schema import PretrainConfig
from csml.data.cache import atomic_write
from csml.errors import CsmlError
from csml.models.backbones import BACKBONES, build_backbone
from csml.views.augment import MEAN, STD

_PREFIXES = ("module.encoder_q.", "encoder_q.", "module.backbone.", "backbone.", "module.", "model.", "")
"""Where checkpoints keep the network: MoCo's query encoder, wrappers of others, plain torchvision."""
_NESTED = ("state_dict", "model", "teacher")


def save_backbone(path: Path, backbone: ResNet, config: PretrainConfig) -> None:
    """Write the network without its heads under torchvision's names, and how to feed it."""
    tensors = {name: value.detach().contiguous().cpu() for name, value in backbone.state_dict().items()}
    facts = {
        "backbone": config.model.backbone,
        "small_images": config.model.small_images,
        "size": config.images.size,
        "eval_crop": config.images.eval_crop,
        "mean": MEAN,
        "std": STD,
    }
    with atomic_write(path) as temporary:
        save_file(tensors, temporary, metadata={"csml": json.dumps(facts)})


def load_backbone(path: str | Path) -> ResNet:
    """The pre-trained network in eval mode: images `(B, 3, H, W)` → pooled features `(B, C)`.

    Args:
        path: a run directory, its backbone.safetensors, or a checkpoint file of torchvision or MoCo (.pth, .pt,
            .safetensors), whose architecture is recognised from its shapes.

    The network is torchvision's, under torchvision's names, with `fc` replaced by the identity.
    """
    facts = weight_facts(path)
    state = _strip_prefix(_read(_file(path)))
    name = facts.get("backbone") or _recognise(state, path)
    small = facts["small_images"] if facts else state["conv1.weight"].shape[-1] == 3
    net = build_backbone(name, small)
    wanted = net.state_dict()
    missing = sorted(set(wanted) - set(state))
    wrong = [key for key in wanted if key in state and state[key].shape != wanted[key].shape]
    if missing or wrong:
        what = f"{missing[0]} is missing" if missing else f"{wrong[0]} has another shape"
        raise CsmlError(f"{path} does not fit {name}: {what} ({len(missing)} missing, {len(wrong)} of another shape)")
    net.load_state_dict({key: state[key] for key in wanted})
    return net.eval()


def weight_facts(path: str | Path) -> dict[str, Any]:
    """How a file of ours wants to be fed (size, eval_crop, …); empty for others' files. Reads no weights."""
    file = _file(path)
    if file.suffix != ".safetensors":
        return {}
    with _as_weights(file), safe_open(file, framework="pt") as opened:
        return json.loads((opened.metadata() or {}).get("csml", "{}"))


def _file(path: str | Path) -> Path:
    path = Path(path).expanduser()
    if path.is_dir():
        path = path / "backbone.safetensors"
    if not path.exists():
        raise CsmlError(f"there are no weights at {path}; give a run directory or a weight file")
    return path


@contextlib.contextmanager
def _as_weights(path: Path) -> Iterator[None]:
    """Turns whatever a broken file raises into one line."""
    try:
        yield
    except Exception as error:
        raise CsmlError(f"{path} cannot be read as weights ({str(error).splitlines()[0]})") from error


def _read(path: Path) -> dict[str, Tensor]:
    with _as_weights(path):
        loaded = load_file(path) if path.suffix == ".safetensors" else torch.load(path, "cpu", weights_only=True)
    for key in _NESTED:
        if isinstance(loaded, dict) and isinstance(loaded.get(key), dict):
            loaded = loaded[key]
    if not isinstance(loaded, dict):
        raise CsmlError(f"{path} holds a {type(loaded).__name__}, not a dictionary of weights")
    return {key: value for key, value in loaded.items() if isinstance(value, Tensor)}


def _strip_prefix(state: dict[str, Tensor]) -> dict[str, Tensor]:
    for prefix in _PREFIXES:
        if f"{prefix}conv1.weight" in state:
            return {key[len(prefix) :]: value for key, value in state.items() if key.startswith(prefix)}
    return state


def _recognise(state: dict[str, Tensor], path: str | Path) -> str:
    """The backbone whose parameters have these names and shapes, the first convolution aside."""
    ours = {key: value.shape for key, value in state.items() if key.startswith("layer")}
    for name in BACKBONES:
        with torch.device("meta"):
            theirs = {k: v.shape for k, v in build_backbone(name).state_dict().items() if k.startswith("layer")}
        if theirs == ours:
            return name
    raise CsmlError(f"{path} is none of the networks known here: {', '.join(BACKBONES)}")
