"""Tensors out of anyone's checkpoint file, by name, without executing anything that is in it."""

import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from csml.errors import CsmlError


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Every tensor in a .safetensors or torch file under its dotted name, dictionaries in dictionaries included."""
    try:
        loaded = load_file(path) if path.suffix == ".safetensors" else _unpickled(path)
    except Exception as error:
        raise CsmlError(f"{path} cannot be read as weights ({' '.join(str(error).split())[:200]})") from error
    tensors: dict[str, Tensor] = {}
    _collect(loaded, "", tensors)
    if not tensors:
        raise CsmlError(f"{path} holds a {type(loaded).__name__} without weights, not a dictionary of them")
    return tensors


def _unpickled(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        if not zipfile.is_zipfile(path):  # the format before torch 1.6 has more ways to do things than to be read
            raise
        # Trainers leave their settings beside the weights, as objects of classes that are not here, or should not run.
        return torch.load(path, map_location="cpu", weights_only=False, pickle_module=_INERT)


def _collect(value: Any, prefix: str, into: dict[str, Tensor]) -> None:
    if isinstance(value, Tensor):
        into[prefix] = value.detach()
    elif isinstance(value, dict):
        for key, item in value.items():
            _collect(item, f"{prefix}.{key}" if prefix else str(key), into)


class _Stand(dict):  # type: ignore[type-arg]
    """What every other object of a pickle becomes: it takes what it is given and does nothing."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__()

    __hash__ = object.__hash__  # type: ignore[assignment]

    def __call__(self, *arguments: Any, **named: Any) -> "_Stand":
        return self

    def __setstate__(self, state: Any) -> None: ...

    def __setitem__(self, key: Any, value: Any) -> None: ...

    def append(self, value: Any) -> None: ...

    def extend(self, values: Any) -> None: ...

    def add(self, value: Any) -> None: ...


class _Trusted:
    """A function that may be called, and nothing else be done to."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)

    def __setstate__(self, state: Any) -> None: ...


_NEEDED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch", "Size"): torch.Size,
    ("torch", "device"): torch.device,
    ("torch._utils", "_rebuild_tensor"): _Trusted(torch._utils._rebuild_tensor),
    ("torch._utils", "_rebuild_tensor_v2"): _Trusted(torch._utils._rebuild_tensor_v2),
    ("torch._utils", "_rebuild_parameter"): _Trusted(torch._utils._rebuild_parameter),
    ("builtins", "getattr"): _Trusted(lambda *_: _Stand),  # how nested classes are named
    ("__builtin__", "getattr"): _Trusted(lambda *_: _Stand),
}
"""All it takes to build tensors in plain containers. Storages are looked up by torch itself."""


class _InertUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return _NEEDED.get((module, name), _Stand)


_INERT = SimpleNamespace(Unpickler=_InertUnpickler, __name__="inert")
"""Stands where torch.load expects the pickle module: classes and functions of a file are never looked up."""
