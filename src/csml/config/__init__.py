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
from csml.config.detection import RANDOM, DetectConfig, DetectorConfig, DetectScheduleConfig, ScenesConfig
from csml.config.fields import Settings, check
from csml.config.frameworks import DEFAULT_FRAMEWORK, FRAMEWORKS
from csml.config.frameworks.base import FrameworkConfig
from csml.config.frameworks.byol import ByolConfig
from csml.config.frameworks.contrast import ContrastConfig
from csml.config.frameworks.simsiam import SimSiamConfig
from csml.config.images import NAMED, AugmentationConfig, ImagesConfig
from csml.config.layers import COMMAND_LINE, Layer, as_settings, configure, field_keys, flatten, lay_over, nest
from csml.config.network import BACKBONES, SMALL, STAGES, TORCHVISION, BackboneConfig, ModelConfig
from csml.config.optimizer import OptimizerConfig
from csml.config.presets import BASES, DETECT_PRESETS, PRESETS, SECTIONS, TWINS, detect_preset, preset_settings
from csml.config.pretraining import PretrainConfig, check_against_data
from csml.config.protocols import KnnConfig, LinearConfig
from csml.config.run import (
    CheckpointConfig,
    HardwareConfig,
    MonitorConfig,
    OnlineTestConfig,
    RunConfig,
    TrainingConfig,
)
from csml.config.sources import HUB, Sources, absolute_sources, is_path, join_sources, sources_title, split_sources
from csml.config.views import NeighborsConfig, ViewsConfig
from csml.config.yaml_files import load_yaml, read_config_file

__all__ = [
    "BACKBONES",
    "BASES",
    "COMMAND_LINE",
    "DEFAULT_FRAMEWORK",
    "DETECT_PRESETS",
    "FRAMEWORKS",
    "HUB",
    "NAMED",
    "PRESETS",
    "RANDOM",
    "SECTIONS",
    "SMALL",
    "STAGES",
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
    "Sources",
    "SupervisedConfig",
    "TablesConfig",
    "TrainingConfig",
    "ViewsConfig",
    "absolute_sources",
    "as_settings",
    "check",
    "check_against_data",
    "configure",
    "detect_preset",
    "field_keys",
    "flatten",
    "is_path",
    "join_sources",
    "lay_over",
    "load_yaml",
    "nest",
    "preset_settings",
    "read_config_file",
    "sources_title",
    "split_sources",
]
