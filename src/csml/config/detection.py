"""Settings of `csml detect`. The defaults are the paper's: Faster R-CNN R50-C4 on VOC 07+12."""

from dataclasses import dataclass, field
from typing import Literal

from csml.config.schema import BackboneConfig, RunConfig

RANDOM = "random"
"""In place of weights: none."""


@dataclass
class ScenesConfig:
    """How images and their objects are found and read."""

    keep_empty: bool = False
    """Also learn from images without objects. They teach the detector to be silent."""
    short_sides: tuple[int, ...] = (480, 512, 544, 576, 608, 640, 672, 704, 736, 768, 800)
    """Shorter side in pixels of a training image, drawn anew for each. Smaller ones are faster and need less memory."""
    test_side: int = 800
    """The same for a test image."""
    max_side: int = 1333
    """Images whose longer side would exceed this are made smaller."""
    flip: float = 0.5
    """Probability of a horizontal flip. Set to 0 if left and right mean something."""
    max_failed: float = 0.05
    """Share of the files that may fail to decode before the run stops."""
    workers: int | None = None
    """Processes that decode pictures; by default none for data in memory, one where the CPU trains, else one per spare
    core."""
    synthetic_train: int = 600
    """Number of training scenes when data is `synthetic`."""
    synthetic_val: int = 200
    """Number of test scenes when data is `synthetic`."""
    synthetic_size: int = 160
    """Side in pixels of the synthetic scenes."""


@dataclass
class DetectorConfig:
    """The detector around the backbone."""

    kind: Literal["c4", "fpn"] = "c4"
    """c4: Faster R-CNN; proposals from stage 3, stage 4 and one more norm as the box head. fpn: a pyramid of all
    stages; Mask R-CNN where the data has masks."""
    masks: bool | None = None
    """Whether fpn also learns masks; by default if the data has them."""
    anchors: tuple[int, ...] = (32, 64, 128, 256, 512)
    """Sides in pixels of the anchors. c4 has all of them at every place, fpn one per level (five). Objects much smaller
    than the smallest are not found."""
    roi_side: int = 14
    """Pixels that a proposal is cut to before stage 4 halves them; c4 only. Small backbones on small images want 8."""
    channels: int = 256
    """Of the pyramid and its mask head; fpn only."""
    head_width: int = 1024
    """Of the two layers of the box head; fpn only."""
    proposals: int = 2000
    """Boxes proposed for each training image, after suppression; half as many in tests."""
    rois: int = 512
    """Of those, the ones that the box head learns from. Fewer are faster."""
    min_score: float = 0.05
    """Detections below are dropped."""
    nms: float = 0.5
    """Of two detections of a class that overlap more (IoU), the better is kept."""
    max_detections: int = 100
    """Kept per image."""


@dataclass
class DetectScheduleConfig:
    """SGD with a stepped learning rate, counted in iterations."""

    iterations: int = 24_000
    """Steps of the whole run (VOC 07+12: 24 000; COCO 1×: 90 000)."""
    lr_per_16: float = 0.02
    """Learning rate for a batch of 16 images; scaled linearly with the batch. Halve it if the loss diverges."""
    warmup: int = 100
    """Iterations over which the learning rate rises linearly from 0."""
    milestones: tuple[float, ...] = (3 / 4, 11 / 12)
    """Shares of the run after which the learning rate is multiplied by 0.1: 18 000 and 22 000 of 24 000."""
    momentum: float = 0.9
    """SGD momentum."""
    weight_decay: float = 1e-4
    """Weight decay."""
    report_every: int = 500
    """Iterations between two lines of metrics; also the rhythm of checkpoints."""


@dataclass
class DetectConfig(RunConfig):
    """Everything `csml detect` needs to know."""

    weights: str | None = None
    """The backbone to start from: a run directory or a weight file, ours or another trainer's, or `random` for one of
    model.backbone without training; --weights may be left out."""
    data: str = "synthetic"
    """A folder with annotations as VOC or COCO has them, or synthetic."""
    format: Literal["auto", "voc", "coco"] = "auto"
    """Of the annotations in --data. voc: JPEGImages, Annotations and ImageSets/Main, of one year or of several;
    coco: JSON files. auto: whichever is there."""
    train: tuple[str, ...] = ()
    """What to learn from. voc: a list such as VOC2007/trainval, or several, '["VOC2007/train", "VOC2012/val"]'; by
    default trainval of all years, else train. coco: a JSON file below --data; by default
    annotations/instances_train*.json."""
    test: tuple[str, ...] = ()
    """What to test on, likewise; by default test of the first year that has it, else val;
    annotations/instances_val*.json."""
    batch_size: int = 16
    """Images per step."""
    voc_points: Literal["11", "all"] = "11"
    """VOC's AP from precision at 11 recalls (VOC 2007, what papers report), or the area under all of the curve."""
    model: BackboneConfig = field(default_factory=BackboneConfig)
    scenes: ScenesConfig = field(default_factory=ScenesConfig)
    detector: DetectorConfig = field(default_factory=DetectorConfig)
    schedule: DetectScheduleConfig = field(default_factory=DetectScheduleConfig)
