"""Precision and memory layout that suit a network on this machine: measured once, kept by the run.

On a CPU bf16 is twice as fast for one network and slower for another, and flags of the CPU do not say which. So a few
images go forward and backward through the network in each way, once per machine and network; `distributed/measured.py`
remembers the choice. A run writes what it trains with into run.json, and resumes with that.
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
from csml.distributed.measured import cpu_seconds, fastest_times, is_allowed, remembered
from csml.distributed.threads import one_thread
from csml.distributed.world import ALONE, World
from csml.files import cache_key
from csml.models.backbones import Backbone, build_backbone, has_depthwise

log = logging.getLogger("csml")

BF16, FLOAT32 = "bf16-mixed", "32-true"
_SIDES = (32, 64, 96)
"""Pixels: the next of them stands for a side. Larger images would take longer and hardly change which way is faster."""
_FEWEST, _MOST, _LONG_ENOUGH = 4, 64, 0.05
"""Images in a pass: twice as many until it takes so many seconds of CPU time."""
_ROUNDS = 2
_WORTH = 0.9
"""Another precision or layout than the usual one must take at most so much of its time: less is noise."""


@dataclass(frozen=True)
class Way:
    """How a network computes, and why so."""

    precision: str
    channels_last: bool
    why: str = ""

    def __str__(self) -> str:
        return f"{self.precision}, {'channels-last' if self.channels_last else 'channels-first'}"


USUAL = Way(FLOAT32, True)


def best_way(seconds: Mapping[Way, float]) -> Way:
    """The fastest way, by the seconds that each took. A layout or a precision other than the usual one must be clearly
    faster than the usual one."""

    def penalty(way: Way) -> float:
        return _WORTH ** -((way.precision != USUAL.precision) + (way.channels_last != USUAL.channels_last))

    return min(seconds, key=lambda way: seconds[way] * penalty(way))


def way_for(network: "str | Backbone", side: int, small_images: bool = False, channels: int = 3) -> Way:
    """The way that suits a network on this CPU.

    Args:
        network: a network, or the name of one.
        side: pixels of the images.
        small_images, channels: as in `build_backbone`, for a name.
    """
    if isinstance(network, str):
        with torch.device("meta"):
            outline = build_backbone(network, small_images, channels)
    else:
        outline = network
    if not is_allowed():
        return _by_flags(outline)
    side = min(_SIDES, key=lambda one: abs(one - side))
    shapes = [[type(one).__name__, *(tuple(p.shape) for p in one.parameters(False))] for one in outline.modules()]

    def measure() -> dict[str, Any]:
        with torch.random.fork_rng(devices=[]):  # the weights of the run do not depend on whether this was measured
            made = build_backbone(network, small_images, channels) if isinstance(network, str) else network
            return _measure(made, side)

    found = remembered("network", (cache_key(shapes), side), measure)
    try:
        return Way(str(found["precision"]), bool(found["channels_last"]), str(found["why"]))
    except KeyError:  # written by another version
        return _by_flags(outline)


def suited(
    hardware: HardwareConfig, network: "str | Backbone", side: int, world: World = ALONE, **build: Any
) -> tuple[HardwareConfig, str]:
    """The settings with all that was left open decided, and why; what was given stays. Rank 0 decides for all."""
    if accelerator_of(hardware) != "cpu" or (hardware.precision != "auto" and hardware.channels_last is not None):
        return hardware, ""
    way = world.broadcast(lambda: way_for(network, side, **build))
    precision = way.precision if hardware.precision == "auto" else hardware.precision
    channels_last = way.channels_last if hardware.channels_last is None else hardware.channels_last
    return replace(hardware, precision=precision, channels_last=channels_last), way.why  # type: ignore[arg-type]


def with_suited_hardware(config: Any, kept: dict[str, Any]) -> Any:
    """The settings of a run that trains, with its hardware decided.

    Args:
        config: has `hardware`, `images` and `model`.
        kept: run.json of a run that is resumed; it computes as it did before. Empty for a new run.
    """
    hardware, model, images = as_before(config.hardware, kept), config.model, config.images
    hardware, why = suited(hardware, model.backbone, images.size, join_world(hardware), **_build(model, images))
    if why:
        layout = "channels-last" if hardware.channels_last else "channels-first"
        log.info("computes in %s, %s (%s)", hardware.precision, layout, why)
    return replace(config, hardware=hardware)


def as_before(hardware: HardwareConfig, kept: dict[str, Any]) -> HardwareConfig:
    """The settings with what was left open taken from run.json, where that exists."""
    if hardware.precision == "auto" and "precision" in kept:
        hardware = replace(hardware, precision=kept["precision"])
    if hardware.channels_last is None and kept:
        hardware = replace(hardware, channels_last=kept.get("channels_last", True))  # always so before it was written
    return hardware


def explained(config: Any) -> list[str]:
    """What `auto` stands for in settings that have a network, a line each."""
    hardware, model, images = (getattr(config, name, None) for name in ("hardware", "model", "images"))
    if not isinstance(hardware, HardwareConfig) or model is None or images is None:
        return []
    chosen, why = suited(hardware, model.backbone, images.size, **_build(model, images))
    return [
        f"hardware.{name} {was}: {now} ({why})"
        for name, was, now in (
            ("precision", "auto", chosen.precision),
            ("channels_last", "null", str(chosen.channels_last).lower()),
        )
        if getattr(hardware, name) != getattr(chosen, name)
    ]


def hardware_of(config: Any, network: Backbone | None) -> HardwareConfig:
    """The same for a verb that uses a network, or else the one its settings name, if they do."""
    hardware, images, model = config.hardware, config.images, getattr(config, "model", None)
    if network is not None:
        return suited(hardware, network, images.center_size, join_world(hardware))[0]
    if model is None:
        return hardware
    return suited(hardware, model.backbone, images.size, join_world(hardware), **_build(model, images))[0]


def _build(model: Any, images: Any) -> dict[str, Any]:
    return {"small_images": model.small_images, "channels": images.channels}


def _by_flags(network: Backbone) -> Way:
    """Without a measurement: bf16 where the CPU has it, except for depthwise convolutions, whose gradient it slows."""
    if not computes_bf16("cpu"):
        return replace(USUAL, why="the CPU has no bf16 of its own")
    if has_depthwise(network):
        return replace(USUAL, why="depthwise convolutions are slow in bf16 on a CPU")
    return Way(BF16, True, "the CPU computes in bf16")


def _measure(net: Backbone, side: int) -> dict[str, Any]:
    """CPU seconds of a forward and backward pass: of the precisions in turns, then of the layouts."""
    channels = next(p.shape[1] for p in net.parameters() if p.dim() == 4)
    keep_freed_memory()  # as in every run
    networks = {layout: copy.deepcopy(net).to(memory_format=_format(layout)).train() for layout in (True, False)}

    def run(way: Way, count: int) -> None:
        images = torch.rand(count, channels, side, side).contiguous(memory_format=_format(way.channels_last))
        with torch.autocast("cpu", torch.bfloat16, enabled=way.precision == BF16):
            loss = networks[way.channels_last](images).float().square().mean()
        loss.backward()

    def times(ways: list[Way]) -> dict[Way, float]:
        seconds = fastest_times({str(way): partial(run, way, count) for way in ways}, _ROUNDS)
        return {way: seconds[str(way)] for way in ways}

    count = _FEWEST
    with one_thread():
        run(USUAL, count)
        while count < _MOST and cpu_seconds(partial(run, USUAL, count)) < _LONG_ENOUGH:
            count *= 2
    bf16 = [replace(USUAL, precision=BF16)] if computes_bf16("cpu") else []  # emulated, it is never faster
    seconds = times([USUAL, *bf16])
    seconds |= times([replace(best_way(seconds), channels_last=False)])
    best = best_way(seconds)
    compared = (
        f"{best} takes {seconds[best] / seconds[USUAL]:.2f} of the time of {USUAL}" if best != USUAL else "fastest"
    )
    why = f"{compared}, measured on this CPU with {count} images of {side} pixels"
    measured = {str(way): round(taken, 4) for way, taken in seconds.items()}
    return {"precision": best.precision, "channels_last": best.channels_last, "why": why, "seconds": measured}


def _format(channels_last: bool) -> torch.memory_format:
    return torch.channels_last if channels_last else torch.contiguous_format
