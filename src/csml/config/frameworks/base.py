"""Base class of the settings of all frameworks."""

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from csml.config.fields import Settings, require
from csml.errors import CsmlError

if TYPE_CHECKING:
    from csml.config.pretraining import PretrainConfig


@dataclass(frozen=True)
class FrameworkConfig(Settings):
    """Settings of a framework, and properties of it that need no torch."""

    name: ClassVar[str]
    """the name of the file: value of --framework, section of the settings, module in `csml.methods`"""
    title: ClassVar[str]
    """for messages"""
    single: ClassVar[str]
    """name of runs and presets without cross-sample views"""
    cross: ClassVar[str]
    """name of runs and presets with CsMl's cross-sample views"""
    missing_elsewhere: ClassVar[str] = "no such setting"
    """what this section configures and other frameworks lack, for messages"""

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        cls.name = cls.__module__.rpartition(".")[2]

    @classmethod
    def twins(cls) -> dict[str, tuple[str, ...]]:
        """Suffixes of presets, each with the files that override the base preset, in order."""
        return {cls.single: (cls.name, "single"), cls.cross: (cls.name,)}

    def run_name(self, cross_sample: bool) -> str:
        """Name of a run, without the name of its data."""
        return self.cross if cross_sample else self.single

    @property
    def remembers(self) -> bool:
        """Whether it stores a key of every image, so that neighbours can be positives without encoding a view."""
        return False

    def check_run(self, config: "PretrainConfig") -> None:
        """Raise CsmlError if the settings of pre-training do not fit this framework, the chosen one."""
        require(
            not config.views.cross_sample or config.views.neighbor_views or self.remembers,
            "views.neighbor_views",
            "neighbours need a view, or --contrast.memory true",
        )
        for other in config.frameworks():
            if other.name != self.name and (changed := _changed(other)):
                raise CsmlError(
                    f"{other.name}.{changed[0]}: {self.title} has {other.missing_elsewhere}; leave it out, or start "
                    f"from a preset such as demo-{self.twin() or other.twin()}"
                )

    @classmethod
    def twin(cls) -> str | None:
        """Suffix of the presets of this framework; None if its presets have no suffix."""
        return cls.single if cls.cross in cls.twins() else None


def _changed(settings: FrameworkConfig) -> list[str]:
    return [field.name for field in dataclasses.fields(settings) if getattr(settings, field.name) != field.default]
