"""Settings of `csml pretrain`, with a section for each framework."""

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from csml.config.fields import choice, require
from csml.config.frameworks import DEFAULT_FRAMEWORK, FRAMEWORKS
from csml.config.frameworks.base import FrameworkConfig
from csml.config.network import ModelConfig
from csml.config.run import NEEDS_DATA, OnlineTestConfig, TrainingConfig
from csml.config.views import NeighborsConfig, ViewsConfig

F = TypeVar("F", bound=FrameworkConfig)

_OF_THE_PRESET = ("batch_size", "epochs", "images.size", "optimizer.lr_per_256", "model.backbone")
"""Settings in the short help that the preset `auto` chooses."""


@dataclass(frozen=True)
class PretrainSettings(TrainingConfig):
    """Settings of `csml pretrain` without those of the frameworks."""

    default_texts = NEEDS_DATA | dict.fromkeys(_OF_THE_PRESET, "default: that of the preset, otherwise {}")

    framework: str = choice(DEFAULT_FRAMEWORK, tuple(FRAMEWORKS))
    """Pre-training method; its settings are in the section of the same name. For a framework other than contrast, start
    from a preset such as NAME-byol."""
    views: ViewsConfig = ViewsConfig()
    neighbors: NeighborsConfig = NeighborsConfig()
    model: ModelConfig = ModelConfig()
    monitor: OnlineTestConfig = OnlineTestConfig()

    @property
    def method(self) -> FrameworkConfig:
        """The section of the chosen framework."""
        section: FrameworkConfig = getattr(self, self.framework)
        return section

    def section(self, kind: type[F]) -> F:
        """The section of a framework by its settings class."""
        section: F = getattr(self, kind.name)
        return section

    def frameworks(self) -> tuple[FrameworkConfig, ...]:
        """The sections of all frameworks."""
        return tuple(self.section(kind) for kind in FRAMEWORKS.values())

    def check(self) -> None:
        views, k = self.views, self.neighbors.k
        require(
            k == 0 or views.positives <= k or not views.cross_sample,
            "views.positives",
            f"at most neighbors.k, which is {k}, not {views.positives}",
        )
        require(
            self.neighbors.features != "start" or self.model.weights is not None or not views.cross_sample,
            "neighbors.features",
            "start needs weights to start from; give --model.weights, or pass",
        )
        small, size = views.small_size, self.images.size
        require(
            small is None or small <= size or views.small_crops == 0,
            "views.small_size",
            f"at most images.size, which is {size}, not {small}",
        )
        self.method.check_run(self)


if TYPE_CHECKING:
    PretrainConfig = PretrainSettings
else:
    PretrainConfig = dataclasses.make_dataclass(
        "PretrainConfig",
        [(name, kind, kind()) for name, kind in FRAMEWORKS.items()],
        bases=(PretrainSettings,),
        namespace={"__doc__": "Settings of `csml pretrain`.", "__module__": __name__},
        frozen=True,
    )


def check_against_data(config: TrainingConfig, images: int) -> None:
    """Raise CsmlError for settings that need more images."""
    require(
        config.batch_size <= images, "batch_size", f"at most {images}, the number of images, not {config.batch_size}"
    )
    if isinstance(config, PretrainSettings) and config.views.cross_sample:
        k = config.neighbors.k
        require(k < images, "neighbors.k", f"less than {images}, the number of images, not {k}")


def fitted_to_data(config: PretrainConfig, images: int, given: Collection[str] = ()) -> PretrainConfig:
    """The settings with batch size and neighbours reduced to fit the number of images; keys in `given` are kept."""
    require(images >= 2, "data", f"pre-training compares images with each other; give at least 2, not {images}")
    batch_size, k = config.batch_size, config.neighbors.k
    if batch_size > images and "batch_size" not in given:
        batch_size = max(2, images // 2)
    if "neighbors.k" not in given:
        k = min(k, images - 1)
    return dataclasses.replace(config, batch_size=batch_size, neighbors=dataclasses.replace(config.neighbors, k=k))
