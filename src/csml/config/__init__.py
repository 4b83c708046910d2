"""Settings of the method and of every command: dataclasses that carry their bounds, layers, presets. No torch."""

from csml.config.classifiers import ClassifierConfig, FinetuneConfig, MineConfig, SupervisedConfig
from csml.config.commands import (
    AblateConfig,
    DemoConfig,
    EmbedConfig,
    ExploreConfig,
    ExportConfig,
    NeighborsOfConfig,
    PackConfig,
    PredictConfig,
    ReportConfig,
    SearchingConfig,
    TablesConfig,
)
from csml.config.detection import DetectConfig, DetectorConfig, DetectScheduleConfig, ScenesConfig
from csml.config.fields import Settings, check
from csml.config.frameworks import DEFAULT_FRAMEWORK, FRAMEWORKS
from csml.config.frameworks.base import FrameworkConfig
from csml.config.frameworks.byol import ByolConfig
from csml.config.frameworks.contrast import ContrastConfig
from csml.config.frameworks.simsiam import SimSiamConfig
from csml.config.images import NAMED, AugmentationConfig, ImagesConfig
from csml.config.layers import COMMAND_LINE, Layer, as_settings, configure, field_keys, flatten, lay_over, nest
from csml.config.network import (
    BACKBONES,
    PACKAGED,
    PIXELS,
    RANDOM,
    SMALL,
    STAGES,
    TIMM,
    TORCHVISION,
    BackboneConfig,
    ModelConfig,
    is_unlearnt,
    names_weights,
)
from csml.config.optimizer import OptimizerConfig
from csml.config.presets import (
    AUTO,
    BASES,
    DETECT_PRESETS,
    PRESETS,
    SECTIONS,
    TWINS,
    detect_preset,
    preset_settings,
    settings_from_weights,
)
from csml.config.pretraining import PretrainConfig, check_against_data
from csml.config.protocols import KnnConfig, LinearConfig
from csml.config.run import (
    CheckpointConfig,
    HardwareConfig,
    LabelTestConfig,
    MonitorConfig,
    OnlineTestConfig,
    RunConfig,
    TrainingConfig,
)
from csml.config.views import NeighborsConfig, ViewsConfig
from csml.config.yaml_files import load_yaml, read_config_file

__all__ = [
    "AUTO",
    "BACKBONES",
    "BASES",
    "COMMAND_LINE",
    "DEFAULT_FRAMEWORK",
    "DETECT_PRESETS",
    "FRAMEWORKS",
    "NAMED",
    "PACKAGED",
    "PIXELS",
    "PRESETS",
    "RANDOM",
    "SECTIONS",
    "SMALL",
    "STAGES",
    "TIMM",
    "TORCHVISION",
    "TWINS",
    "AblateConfig",
    "AugmentationConfig",
    "BackboneConfig",
    "ByolConfig",
    "CheckpointConfig",
    "ClassifierConfig",
    "ContrastConfig",
    "DemoConfig",
    "DetectConfig",
    "DetectScheduleConfig",
    "DetectorConfig",
    "EmbedConfig",
    "ExploreConfig",
    "ExportConfig",
    "FinetuneConfig",
    "FrameworkConfig",
    "HardwareConfig",
    "ImagesConfig",
    "KnnConfig",
    "LabelTestConfig",
    "Layer",
    "LinearConfig",
    "MineConfig",
    "ModelConfig",
    "MonitorConfig",
    "NeighborsConfig",
    "NeighborsOfConfig",
    "OnlineTestConfig",
    "OptimizerConfig",
    "PackConfig",
    "PredictConfig",
    "PretrainConfig",
    "ReportConfig",
    "RunConfig",
    "ScenesConfig",
    "SearchingConfig",
    "Settings",
    "SimSiamConfig",
    "SupervisedConfig",
    "TablesConfig",
    "TrainingConfig",
    "ViewsConfig",
    "as_settings",
    "check",
    "check_against_data",
    "configure",
    "detect_preset",
    "field_keys",
    "flatten",
    "is_unlearnt",
    "lay_over",
    "load_yaml",
    "names_weights",
    "nest",
    "preset_settings",
    "read_config_file",
    "settings_from_weights",
]
