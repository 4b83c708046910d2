"""Import lightning_fabric, torchvision and timm without torch's compiler, whose import takes longer than torch's own.

lightning_fabric imports it only to recognise networks wrapped by `torch.compile`, torchvision to check whether a device
supports it, timm to exclude some functions of rare networks. Until the compiler is loaded, no network is wrapped; later
checks and calls use the real one.
"""

import importlib
import sys
from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any

_COMPILER, _UTILITIES = "torch._dynamo", "torch._dynamo.utils"


class _Deferred(type):
    """The class of compiled networks, for isinstance checks only."""

    def __instancecheck__(cls, one: object) -> bool:
        compiled = getattr(sys.modules.get(_COMPILER), "OptimizedModule", cls)
        return compiled is not cls and isinstance(one, compiled)


class OptimizedModule(metaclass=_Deferred):
    """Placeholder for the class of that name in torch._dynamo."""


def is_compile_supported(device_type: str) -> Any:
    """As in torch._dynamo.utils, which is imported on this call."""
    return importlib.import_module(_UTILITIES).is_compile_supported(device_type)


def disable(function: Callable[..., Any], *options: Any, **more: Any) -> Callable[..., Any]:
    """As in torch._dynamo, which is imported when the function is called for the first time."""
    excluded: list[Callable[..., Any]] = []

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not excluded:
            excluded.append(importlib.import_module(_COMPILER).disable(function, *options, **more))
        return excluded[0](*args, **kwargs)

    return call


def import_light(package: str) -> None:
    """Import the package, without the compiler unless that or the package has been imported before."""
    importlib.import_module("torch")
    if _COMPILER in sys.modules or package in sys.modules:
        return
    compiler, utilities = ModuleType(_COMPILER), ModuleType(_UTILITIES)
    vars(compiler).update(OptimizedModule=OptimizedModule, disable=disable, utils=utilities, __path__=[])
    vars(utilities).update(is_compile_supported=is_compile_supported)
    sys.modules |= {_COMPILER: compiler, _UTILITIES: utilities}
    try:
        importlib.import_module(package)
    except (ImportError, AttributeError):  # another version needs more of the compiler, which is then imported as usual
        for name in [name for name in sys.modules if name.partition(".")[0] == package]:
            del sys.modules[name]
    finally:
        for name in (_UTILITIES, _COMPILER):
            del sys.modules[name]
