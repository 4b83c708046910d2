"""`csml presets`: the named settings, each with a line from its own file."""

from dataclasses import dataclass

from csml.config import BASES, DETECT_PRESETS, SECTIONS, about_preset


@dataclass(frozen=True)
class Preset:
    """A named set of settings."""

    name: str
    about: str
    """one line"""
    commands: tuple[str, ...]
    """the commands that take it"""


def presets() -> list[Preset]:
    """The presets of all commands, without those of other methods.

    Every preset of `pretrain` has variants for other methods on the same images: `demo-moco-v2`, `demo-byol`, ….
    """
    trained = ("pretrain", *SECTIONS)
    found = [Preset(name, about_preset(name), trained) for name in BASES]
    return found + [Preset(name, about_preset(f"detect/{name}"), ("detect",)) for name in DETECT_PRESETS]
