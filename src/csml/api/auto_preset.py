"""`--preset auto`: the preset, image size, batch and length of a run that suit the images and the machine."""

import contextlib
import importlib.util
import logging
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from csml.config import AUTO, NAMED, HardwareConfig, PretrainConfig, flatten, preset_settings
from csml.data.decode import DecodeError
from csml.data.images import Images, evenly_spaced
from csml.data.open import IN_MEMORY
from csml.distributed.device import accelerator_of, memory_format
from csml.distributed.threads import one_thread
from csml.distributed.timing_cache import cpu_seconds
from csml.models.backbones import build_backbone
from csml.program import program
from csml.release import install_command
from csml.training.start_comparison import compared_images
from csml.views.recipe import sides
from csml.weights.named import PACKAGES

log = logging.getLogger("csml")

_VISITS = 8_000
"""Images seen by a run that starts from weights, repeats included; more brought no gain."""
_MOST_EPOCHS, _FEWEST_EPOCHS = 20, 1
_LOOKED_AT = 32
"""Number of images whose size is read."""
_SMALLEST_SIDE = 64
"""Networks that were trained on ImageNet see little in smaller images; those are enlarged."""
_ENLARGED = 2
"""Largest factor by which images are enlarged for evaluation; such networks see more in enlarged images."""
_PROBED = 8
_TRIES = 3
"""Timed forward passes; the shortest counts, because other processes can only slow a pass down."""

_ELSEWHERE = {"data", "out", "weights", "preset", "config", "resume", "chosen", "needs_data"}
"""Arguments of a call that are not settings."""


@dataclass(frozen=True)
class AutoPreset:
    """A preset, and the settings over it that suit the data."""

    preset: str
    settings: dict[str, Any]
    why: str

    def options(self, call: Mapping[str, Any]) -> str:
        """The settings as command-line options; those of the caller take precedence."""
        given = {key: value for key, value in flatten(call).items() if key not in _ELSEWHERE}
        return " ".join(f"--{key} {shlex.quote(str(value))}" for key, value in {**self.settings, **given}.items())


def is_automatic(preset: str | None, config: Any, data: str | None) -> bool:
    """Whether to choose the preset: `auto` was given, or only a folder without a preset or config."""
    if preset is not None:
        return preset == AUTO
    return config is None and data is not None and data not in (*NAMED, IN_MEMORY)


def choose_preset(train: Images, hardware: HardwareConfig) -> AutoPreset:
    """The preset for these images on the accelerator that the settings ask for."""
    count, side = len(train), _typical_side(train)
    facts = f"{count:,} images of about {side} pixels"
    processor = "on the CPU" if torch.cuda.is_available() else "no GPU"
    if accelerator_of(hardware) == "cuda":
        preset, why = "photos-gpu", f"{facts}, a GPU"
    elif importlib.util.find_spec(PACKAGES["lite0"].module) is not None:
        preset, why = "photos", f"{facts}, {processor}"
    else:
        preset = "photos-scratch"
        why = f"{facts}, {processor}, and no weights to start from: {install_command('weights')}"
    preset_values = preset_settings(preset)
    chosen: dict[str, Any] = {}
    if preset != "photos-scratch":
        chosen["epochs"] = int(np.clip(round(_VISITS / count), _FEWEST_EPOCHS, _MOST_EPOCHS))
        rounded_side = max(_SMALLEST_SIDE, 16 * -(-side // 16))
        chosen["images.size"] = min(preset_values["images.size"], rounded_side)
        if "images.eval_size" in preset_values:
            chosen["images.eval_size"] = min(preset_values["images.eval_size"], _ENLARGED * rounded_side)
    chosen["batch_size"] = min(preset_values["batch_size"], max(2, count // 2))
    return AutoPreset(preset, {key: value for key, value in chosen.items() if preset_values.get(key) != value}, why)


def explain(choice: AutoPreset, config: PretrainConfig, images: int, call: Mapping[str, Any]) -> None:
    """Log the chosen preset, its expected cost, and the equivalent command."""
    words = f"--preset {choice.preset} --data {shlex.quote(str(call['data']))} {choice.options(call)}".rstrip()
    log.info("preset auto: %s (%s); the same as:\n    %s pretrain %s", choice.preset, choice.why, program(), words)
    if accelerator_of(config.hardware) == "cpu":
        seconds, memory = expected_cost(config, images)
        log.info("expected: about %s and %.1f GB", _duration(seconds), memory / 1e9)


def expected_cost(config: PretrainConfig, images: int) -> tuple[float, float]:
    """Seconds and bytes of memory of a run on this CPU, from a forward pass of a few images with this network.

    A backward pass takes twice as long as a forward pass through the stages that learn.
    """
    net = build_backbone(config.model.backbone, config.model.small_images, config.images.channels).eval()
    batch = torch.zeros(_PROBED, config.images.channels, config.images.size, config.images.size)
    net.to(memory_format=memory_format(config.hardware))
    saved = 0

    def count(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal saved
        saved += tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        net(batch)
    threads = torch.get_num_threads()
    with torch.no_grad(), one_thread():  # by CPU time, so that a busy machine does not look like a slow one
        forward = min(cpu_seconds(partial(net, batch)) for _ in range(_TRIES)) / _PROBED / threads
    views, learning = len(sides(config.views)), 1 - config.model.frozen_stages / 4
    queries = (views if config.views.neighbor_queries else 1) + (config.views.mix != "none")
    first_look = images if config.method.remembers else 0
    learnt = images * config.epochs * (queries * (1 + 2 * learning) + views) + first_look
    whole = max(config.images.center_size, config.neighbors.size or 0)
    searches = 0 if not config.views.cross_sample else 1 if config.neighbors.features == "start" else config.epochs
    used = images * (searches + 1) + (0 if config.model.weights is None else compared_images(images, config.epochs))
    weights = sum(p.numel() * p.element_size() for p in net.parameters())
    memory = saved / _PROBED * config.batch_size * queries * learning + 6 * weights + 1e9
    return forward * (learnt + used * (whole / config.images.size) ** 2), memory


def _typical_side(images: Images) -> int:
    """Median of the shorter side of some images."""
    some, shorter = evenly_spaced(images, _LOOKED_AT), []
    for id in range(len(some)):
        with contextlib.suppress(DecodeError):
            shorter.append(min(some.read(id).size))
    return int(np.median(shorter)) if shorter else _SMALLEST_SIDE


def _duration(seconds: float) -> str:
    minutes = max(1, round(seconds / 60))
    return f"{seconds / 3600:.1f} hours" if seconds > 5400 else f"{minutes} minute{'s' * (minutes > 1)}"
