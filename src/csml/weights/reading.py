"""Reads tensors from any checkpoint file without executing code that the file contains."""

import errno
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

from csml.errors import CsmlError, disk_problem
from csml.files import require_file

_DEEPEST = 20
"""Largest nesting depth of dictionaries that are searched for weights."""


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a .safetensors or torch file by dotted name, including those in nested dictionaries."""
    try:
        require_content(path)
        loaded = load_file(path) if path.suffix == ".safetensors" else _unpickled(path)
    except Exception as error:
        raise CsmlError(f"{path} cannot be read as weights ({why_unreadable(error)})") from error
    tensors: dict[str, Tensor] = {}
    _collect(loaded, "", tensors, 0)
    if not tensors:
        raise CsmlError(f"{path} holds a {type(loaded).__name__} without weights instead of a dictionary of weights")
    return tensors


def require_content(path: Path) -> None:
    """Raise OSError unless a path is a regular, non-empty file; full disks and broken downloads leave empty ones."""
    require_file(path)
    if not path.stat().st_size:
        raise OSError(errno.ENODATA, "the file is empty; copy or download it again", str(path))


def why_unreadable(error: Exception) -> str:
    """Why a file cannot be read, in one short line."""
    text = disk_problem(error) if isinstance(error, OSError) else str(error) or type(error).__name__
    if text.startswith("Weights only load failed"):  # followed by a page of advice that does not apply to csml
        text = "it is damaged, or neither a .safetensors file nor a torch checkpoint"
    return " ".join(text.split())[:200]


def _unpickled(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        if not zipfile.is_zipfile(path):  # the format before torch 1.6 can run code outside the unpickler
            raise
        # Trainers store settings beside the weights, as objects of classes that are unknown or must not be executed.
        return torch.load(path, map_location="cpu", weights_only=False, pickle_module=_INERT)


def _collect(value: Any, prefix: str, into: dict[str, Tensor], depth: int) -> None:
    if isinstance(value, Tensor):
        into[prefix] = value.detach()
    elif isinstance(value, dict) and depth < _DEEPEST:  # a dictionary may contain itself
        for key, item in value.items():
            _collect(item, f"{prefix}.{key}" if prefix else str(key), into, depth + 1)


class _Placeholder(dict):  # type: ignore[type-arg]
    """Replaces every object of an unknown class in a pickle: accepts any call or assignment and does nothing."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__()

    __hash__ = object.__hash__  # type: ignore[assignment]

    def __call__(self, *arguments: Any, **named: Any) -> "_Placeholder":
        return self

    def __setstate__(self, state: Any) -> None: ...

    def __setitem__(self, key: Any, value: Any) -> None: ...

    def append(self, value: Any) -> None: ...

    def extend(self, values: Any) -> None: ...

    def add(self, value: Any) -> None: ...


class _Callable:
    """Wraps a trusted function so that a pickle can only call it, not change it."""

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
    ("torch._utils", "_rebuild_tensor"): _Callable(torch._utils._rebuild_tensor),
    ("torch._utils", "_rebuild_tensor_v2"): _Callable(torch._utils._rebuild_tensor_v2),
    ("torch._utils", "_rebuild_parameter"): _Callable(torch._utils._rebuild_parameter),
    ("builtins", "getattr"): _Callable(lambda *_: _Placeholder),  # pickles use it to look up nested classes
    ("__builtin__", "getattr"): _Callable(lambda *_: _Placeholder),
}
"""The only names that are looked up: enough to build tensors in plain containers. torch looks up storages itself."""


class _InertUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return _NEEDED.get((module, name), _Placeholder)


_INERT = SimpleNamespace(Unpickler=_InertUnpickler, __name__="inert")
"""Passed to torch.load in place of the pickle module, so that classes and functions of a file are never looked up."""
