"""Checks csml's metadata in a weight file, because a file may come from anywhere."""

from collections.abc import Callable
from typing import Any

from csml.config import BACKBONES, TIMM, DetectorConfig, configure
from csml.errors import CsmlError

_MOST_CLASSES = 1_000_000


_USUAL_SIZE = 224


def input_size(facts: dict[str, Any]) -> int:
    """Side of the images for evaluation with a network, from its metadata."""
    size: int = facts.get("eval_size", facts.get("size", _USUAL_SIZE))
    return size


def metadata_problem(facts: Any) -> str | None:
    """A problem of the metadata, None if it is valid. Metadata of files that csml did not write is empty."""
    if not isinstance(facts, dict):
        return f"{str(facts)[:60]} instead of an object in braces"
    if not facts:
        return None
    for key in ("backbone", "small_images"):
        if key not in facts:
            return f"{key} is missing"
    if "detector" in facts and (lacking := _OF_DETECTORS - facts.keys()):
        return f"{min(lacking)} is missing"
    wrong = next((key for key, is_right in _RIGHT.items() if key in facts and not is_right(facts[key])), None)
    return wrong and f"{wrong} is {str(facts[wrong])[:60]}"


def _is_backbone(value: Any) -> bool:
    return isinstance(value, str) and (value in BACKBONES or value.startswith(TIMM))


def _is_number(low: float, high: float) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int | float) and low <= value <= high


def _is_whole(low: int, high: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and low <= value <= high


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_names(value: Any) -> bool:
    named = isinstance(value, list) and all(isinstance(name, str) for name in value)
    return named and 0 < len(value) <= _MOST_CLASSES


def _is_colour(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(number, int | float) for number in value)


def _is_detector(value: Any) -> bool:
    try:
        configure(DetectorConfig, value)
    except (CsmlError, AttributeError, TypeError):
        return False
    return True


_RIGHT: dict[str, Callable[[Any], bool]] = {
    "backbone": _is_backbone, "small_images": _is_bool, "unit": _is_bool, "masks": _is_bool, "classes": _is_names,
    "size": _is_whole(1, 2**14), "eval_size": _is_whole(1, 2**14), "eval_crop": _is_number(0, 1),
    "channels": _is_whole(1, 2**10), "test_side": _is_whole(1, 2**16), "max_side": _is_whole(1, 2**16),
    "mean": _is_colour, "std": _is_colour, "detector": _is_detector,
}  # fmt: skip
_OF_DETECTORS = {"masks", "classes", "test_side", "max_side"}
