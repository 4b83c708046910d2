"""Frameworks: how queries are pulled to keys. They see a batch of views and never how the views were made.

A framework NAME is one file, `csml.methods.NAME`, with one subclass of `Framework`, and one settings class in
`csml.config`.
"""

import importlib

from csml.errors import CsmlError
from csml.methods.framework import Framework, StepResult

__all__ = ["Framework", "StepResult", "framework_class"]


def framework_class(name: str) -> type[Framework]:
    """The framework that the module `csml.methods.NAME` defines."""
    try:
        module = importlib.import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        raise CsmlError(f"framework: there is no {name!r}") from error
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, Framework) and value.__module__ == module.__name__:
            return value
    raise CsmlError(f"framework: there is no {name!r}")
