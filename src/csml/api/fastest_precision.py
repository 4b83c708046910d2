"""The fastest precision and memory layout for a network on this machine: measured once, recorded in the run.

On a CPU, bf16 is twice as fast for one network and slower for another, and CPU flags do not tell which. So a few images
are passed forward and backward through the network in each mode, once per machine and network, and
`distributed/timing_cache.py` stores the choice. A run records its mode in run.json, and resumes with it.
"""

import copy
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from csml.config import HardwareConfig
from csml.distributed.device import accelerator_of, computes_bf16, keep_freed_memory
from csml.distributed.launch import join_world
from csml.distributed.threads import one_thread
from csml.distributed.timing_cache import cpu_seconds, fastest_times, is_measuring_allowed, measured_once
from csml.distributed.world import ALONE, World
from csml.files import cache_key
from csml.models.backbones import Backbone, build_backbone, has_depthwise

log = logging.getLogger("csml")

BF16, FLOAT32 = "bf16-mixed", "32-true"
_SIDES = (32, 64, 96)
"""Image sides that are measured; the nearest one is used. Larger images take longer and hardly change the choice."""
_FEWEST, _MOST, _LONG_ENOUGH = 4, 64, 0.05
"""Images per pass: smallest and largest number; doubled until a pass takes this many seconds of CPU time."""
_ROUNDS = 2
_WORTH = 0.9
"""A precision or layout other than the default must take at most this share of its time; less may be noise."""


@dataclass(frozen=True)
class ComputeMode:
    """Precision and memory layout of a network, and why they were chosen."""

    precision: str
    channels_last: bool
    why: str = ""

    def __str__(self) -> str:
        return f"{self.precision}, {'channels-last' if self.channels_last else 'channels-first'}"


DEFAULT_MODE = ComputeMode(FLOAT32, True)


def fastest_mode(seconds: Mapping[ComputeMode, float]) -> ComputeMode:
    """The fastest mode, by the seconds of each. A layout or precision other than the default must be clearly faster."""

    def penalty(mode: ComputeMode) -> float:
        return _WORTH ** -(
            (mode.precision != DEFAULT_MODE.precision) + (mode.channels_last != DEFAULT_MODE.channels_last)
        )

    return min(seconds, key=lambda mode: seconds[mode] * penalty(mode))


def mode_for(network: "str | Backbone", side: int, small_images: bool = False, channels: int = 3) -> ComputeMode:
    """The fastest mode of a network on this CPU.

    Args:
        network: a network or its name.
        side: side of the images in pixels.
        small_images, channels: as in `build_backbone`, if `network` is a name.
    """
    if isinstance(network, str):
        with torch.device("meta"):
            outline = build_backbone(network, small_images, channels)
    else:
        outline = network
    if not is_measuring_allowed():
        return _by_flags(outline)
    side = min(_SIDES, key=lambda one: abs(one - side))
    shapes = [[type(one).__name__, *(tuple(p.shape) for p in one.parameters(False))] for one in outline.modules()]

    def measure() -> dict[str, Any]:
        with torch.random.fork_rng(devices=[]):  # the weights of the run must not depend on whether this was measured
            made = build_backbone(network, small_images, channels) if isinstance(network, str) else network
            return _measure(made, side)

    found = measured_once("network", (cache_key(shapes), side), measure)
    try:
        return ComputeMode(str(found["precision"]), bool(found["channels_last"]), str(found["why"]))
    except KeyError:  # written by another version
        return _by_flags(outline)


def with_fastest_mode(
    hardware: HardwareConfig, network: "str | Backbone", side: int, world: World = ALONE, **build: Any
) -> tuple[HardwareConfig, str]:
    """The settings with everything left open decided by rank 0, and the reason; settings that were given are kept."""
    if accelerator_of(hardware) != "cpu" or (hardware.precision != "auto" and hardware.channels_last is not None):
        return hardware, ""
    mode = world.broadcast(lambda: mode_for(network, side, **build))
    precision = mode.precision if hardware.precision == "auto" else hardware.precision
    channels_last = mode.channels_last if hardware.channels_last is None else hardware.channels_last
    return replace(hardware, precision=precision, channels_last=channels_last), mode.why  # type: ignore[arg-type]


def with_hardware(config: Any, kept: dict[str, Any]) -> Any:
    """The settings of a training run, with precision and memory layout decided.

    Args:
        config: has `hardware`, `images` and `model`.
        kept: run.json of a resumed run, which keeps its mode; empty for a new run.
    """
    hardware, model, images = as_in_run(config.hardware, kept), config.model, config.images
    hardware, why = with_fastest_mode(
        hardware, model.backbone, images.size, join_world(hardware), **_build(model, images)
    )
    if why:
        layout = "channels-last" if hardware.channels_last else "channels-first"
        log.info("computes in %s, %s (%s)", hardware.precision, layout, why)
    return replace(config, hardware=hardware)


def as_in_run(hardware: HardwareConfig, kept: dict[str, Any]) -> HardwareConfig:
    """The settings, with everything left open taken from run.json, if it exists."""
    if hardware.precision == "auto" and "precision" in kept:
        hardware = replace(hardware, precision=kept["precision"])
    if hardware.channels_last is None and kept:
        hardware = replace(hardware, channels_last=kept.get("channels_last", True))  # not in older runs
    return hardware


def explain_auto(config: Any) -> list[str]:
    """What `auto` stands for in settings with a network, one line each."""
    hardware, model, images = (getattr(config, name, None) for name in ("hardware", "model", "images"))
    if not isinstance(hardware, HardwareConfig) or model is None or images is None:
        return []
    chosen, why = with_fastest_mode(hardware, model.backbone, images.size, **_build(model, images))
    return [
        f"hardware.{name} {was}: {now} ({why})"
        for name, was, now in (
            ("precision", "auto", chosen.precision),
            ("channels_last", "null", str(chosen.channels_last).lower()),
        )
        if getattr(hardware, name) != getattr(chosen, name)
    ]


def hardware_for(config: Any, network: Backbone | None) -> HardwareConfig:
    """Hardware settings for a verb that uses `network`, or else the network its settings name, if any."""
    hardware, images, model = config.hardware, config.images, getattr(config, "model", None)
    if network is not None:
        return with_fastest_mode(hardware, network, images.center_size, join_world(hardware))[0]
    if model is None:
        return hardware
    return with_fastest_mode(hardware, model.backbone, images.size, join_world(hardware), **_build(model, images))[0]


def _build(model: Any, images: Any) -> dict[str, Any]:
    return {"small_images": model.small_images, "channels": images.channels}


def _by_flags(network: Backbone) -> ComputeMode:
    """The mode without measuring: bf16 if the CPU supports it, except for depthwise convolutions, which it slows."""
    if not computes_bf16("cpu"):
        return replace(DEFAULT_MODE, why="the CPU has no bf16 of its own")
    if has_depthwise(network):
        return replace(DEFAULT_MODE, why="depthwise convolutions are slow in bf16 on a CPU")
    return ComputeMode(BF16, True, "the CPU computes in bf16")


def _measure(net: Backbone, side: int) -> dict[str, Any]:
    """CPU seconds of a forward and backward pass for each precision, then for each layout."""
    channels = next(p.shape[1] for p in net.parameters() if p.dim() == 4)
    keep_freed_memory()  # as in every run
    networks = {layout: copy.deepcopy(net).to(memory_format=_format(layout)).train() for layout in (True, False)}

    def run(mode: ComputeMode, count: int) -> None:
        images = torch.rand(count, channels, side, side).contiguous(memory_format=_format(mode.channels_last))
        with torch.autocast("cpu", torch.bfloat16, enabled=mode.precision == BF16):
            loss = networks[mode.channels_last](images).float().square().mean()
        loss.backward()

    def times(modes: list[ComputeMode]) -> dict[ComputeMode, float]:
        seconds = fastest_times({str(mode): partial(run, mode, count) for mode in modes}, _ROUNDS)
        return {mode: seconds[str(mode)] for mode in modes}

    count = _FEWEST
    with one_thread():
        run(DEFAULT_MODE, count)
        while count < _MOST and cpu_seconds(partial(run, DEFAULT_MODE, count)) < _LONG_ENOUGH:
            count *= 2
    bf16 = [replace(DEFAULT_MODE, precision=BF16)] if computes_bf16("cpu") else []  # emulated, it is never faster
    seconds = times([DEFAULT_MODE, *bf16])
    seconds |= times([replace(fastest_mode(seconds), channels_last=False)])
    best = fastest_mode(seconds)
    compared = (
        f"{best} takes {seconds[best] / seconds[DEFAULT_MODE]:.2f} of the time of {DEFAULT_MODE}"
        if best != DEFAULT_MODE
        else "fastest"
    )
    why = f"{compared}, measured on this CPU with {count} images of {side} pixels"
    measured = {str(mode): round(taken, 4) for mode, taken in seconds.items()}
    return {"precision": best.precision, "channels_last": best.channels_last, "why": why, "seconds": measured}


def _format(channels_last: bool) -> torch.memory_format:
    return torch.channels_last if channels_last else torch.contiguous_format
