"""Settings of the frameworks, one file each; the name of its file is the name of the framework.

To add a framework: a module here with one subclass of FrameworkConfig, a module of the same name in `csml.methods`, and
presets/NAME.yaml. Its section in the settings of pre-training, its options and its presets follow automatically.
"""

import importlib
import pkgutil

from csml.config.frameworks.base import FrameworkConfig

DEFAULT_FRAMEWORK = "contrast"
"""The framework of the presets without a suffix."""


def _found() -> dict[str, type[FrameworkConfig]]:
    names = [module.name for module in pkgutil.iter_modules(__path__) if module.name != "base"]
    found: dict[str, type[FrameworkConfig]] = {}
    for name in sorted(names, key=lambda name: (name != DEFAULT_FRAMEWORK, name)):
        classes = vars(importlib.import_module(f"{__name__}.{name}")).values()
        (found[name],) = (
            kind
            for kind in classes
            if isinstance(kind, type) and issubclass(kind, FrameworkConfig) and kind is not FrameworkConfig
        )
    return found


FRAMEWORKS: dict[str, type[FrameworkConfig]] = _found()
"""All frameworks by name, the default first."""
