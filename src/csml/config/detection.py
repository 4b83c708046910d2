"""Settings of `csml detect`. The defaults are the paper's: Faster R-CNN R50-C4 on VOC 07+12."""

from dataclasses import dataclass
from typing import Literal

from csml.config.fields import Settings, bounded, common, each, require, share
from csml.config.images import MAX_SIDE
from csml.config.network import BackboneConfig
from csml.config.optimizer import MAX_LR
from csml.config.run import MAX_BATCH, SEEDS, HardwareConfig, RunConfig
from csml.config.sources import Sources

_MAX_ITERATIONS = 10**9
Format = Literal["auto", "voc", "coco", "yolo", "masks", "fiftyone"]


@dataclass(frozen=True)
class ScenesConfig(Settings):
    """How images and their objects are read."""

    keep_empty: bool = False
    """Also train on images without objects, which reduces false detections."""
    short_sides: tuple[int, ...] = common(
        each((480, 512, 544, 576, 608, 640, 672, 704, 736, 768, 800), low=32, limit=MAX_SIDE, unit="pixels")
    )
    """Lengths of the shorter side of a training image, in pixels; one is drawn for each image. Smaller images are
    faster and need less memory."""
    test_side: int = bounded(800, low=32, limit=MAX_SIDE, unit="pixels")
    """Length of the shorter side of a test image, in pixels."""
    max_side: int = bounded(1333, low=32, limit=MAX_SIDE, unit="pixels")
    """Largest length of the longer side, in pixels; larger images are shrunk to it."""
    split_seed: int = bounded(0, low=0, limit=SEEDS - 1)
    """Random seed of the images that --split draws to test on. The seed of the run does not change them."""
    flip: float = share(0.5)
    """Probability of a horizontal flip. Set it to 0 if left and right differ in meaning."""
    max_failed: float = share(0.05)
    """Share of the files that may fail to decode before the run stops."""
    workers: int | None = common(bounded(None, low=0, limit=1024))
    """Processes that decode images. By default none for data in memory, one if the CPU trains, otherwise one per spare
    core."""
    synthetic_train: int = bounded(600, low=1, limit=10**8)
    """Number of training images if data is `synthetic`."""
    synthetic_val: int = bounded(200, low=1, limit=10**8)
    """Number of test images if data is `synthetic`."""
    synthetic_size: int = bounded(160, low=32, limit=4096, unit="pixels")
    """Side of the synthetic images in pixels."""

    def check(self) -> None:
        longest = max(self.test_side, *self.short_sides)
        require(
            self.max_side >= longest, "max_side", f"at least the longest short side, {longest}, not {self.max_side}"
        )


@dataclass(frozen=True)
class DetectorConfig(Settings):
    """The detector on top of the backbone."""

    kind: Literal["c4", "fpn"] = common("c4")
    """c4: Faster R-CNN with proposals from stage 3; stage 4 and one more norm are the box head. fpn: a feature pyramid
    of all stages; Mask R-CNN if the data has masks."""
    masks: bool | None = None
    """Whether fpn also learns masks; by default if the data has them."""
    anchors: tuple[int, ...] = each((32, 64, 128, 256, 512), low=1, limit=MAX_SIDE, unit="pixels")
    """Sides of the anchor boxes in pixels. c4 uses all of them at every position, fpn one per level (five). Objects
    much smaller than the smallest anchor are not found."""
    fixed_batchnorm: bool | None = None
    """Keep the running statistics of the backbone's BatchNorm fixed, and normalise with them in training too. By
    default if the weights come from a run that did so, or are lite0 or timm:NAME."""
    ratios: tuple[float, ...] = each((0.5, 1.0, 2.0), low=0.05, limit=20)
    """Heights of the anchor boxes over their widths."""
    roi_side: int = bounded(14, low=2, limit=256)
    """Side in pixels to which a proposal is resampled before stage 4 halves it; c4 only. Use 8 for small backbones on
    small images."""
    channels: int = bounded(256, low=2, limit=16_384)
    """Channels of the pyramid and of its mask head; fpn only."""
    head_width: int = bounded(1024, low=2, limit=65_536)
    """Width of the two layers of the box head; fpn only."""
    proposals: int = bounded(2000, low=2, limit=100_000)
    """Proposals per training image after non-maximum suppression; half as many in tests."""
    rois: int = bounded(512, low=2, limit=100_000)
    """Number of proposals per image that the box head is trained on. Fewer are faster."""
    min_score: float = bounded(0.05, low=0, below=1)
    """Detections with a lower score are dropped."""
    nms: float = bounded(0.5, above=0, high=1)
    """Of two detections of a class that overlap more than this (IoU), only the better one is kept."""
    max_detections: int = bounded(100, low=2, limit=100_000)
    """Largest number of detections per image."""

    def check(self) -> None:
        if self.kind == "fpn":
            require(
                len(self.anchors) == 5, "anchors", f"one for each of the five levels of an fpn, not {len(self.anchors)}"
            )
        else:
            require(not self.masks, "masks", "needs --detector.kind fpn")


@dataclass(frozen=True)
class DetectScheduleConfig(Settings):
    """SGD with a stepped learning rate; the schedule counts iterations."""

    iterations: int = common(bounded(24_000, above=0, limit=_MAX_ITERATIONS))
    """Number of training steps (VOC 07+12: 24 000; COCO 1×: 90 000)."""
    lr_per_16: float = common(bounded(0.02, above=0, limit=MAX_LR))
    """Learning rate for a batch of 16 images; scaled linearly with the batch size. Halve it if the loss diverges."""
    warmup: int = bounded(100, low=0, limit=_MAX_ITERATIONS)
    """Iterations over which the learning rate rises linearly from 0."""
    milestones: tuple[float, ...] = each((3 / 4, 11 / 12), above=0, below=1, empty=True)
    """Shares of the run after which the learning rate is multiplied by 0.1: 18 000 and 22 000 of 24 000."""
    momentum: float = bounded(0.9, low=0, below=1)
    """Momentum of SGD."""
    weight_decay: float = bounded(1e-4, low=0, limit=1e3)
    """Weight decay."""
    test_every: int | None = bounded(None, low=0, limit=_MAX_ITERATIONS)
    """Iterations between two tests on the test images, rounded up to a multiple of report_every; the best weights are
    kept as the detector. By default, and with 0, only the last weights are tested."""
    patience: int | None = bounded(None, low=1, limit=10_000)
    """Early stopping: stop after this many tests in a row without a better AP. Needs test_every."""
    ema: float | None = bounded(None, above=0, below=1)
    """Test and keep the running average of the weights, which moves by 1 − ema at every iteration; 0.998 averages about
    500 iterations."""
    report_every: int = bounded(500, above=0, limit=_MAX_ITERATIONS)
    """Iterations between two records of metrics; checkpoints count in these intervals, too."""

    def check(self) -> None:
        require(not self.patience or bool(self.test_every), "patience", "needs --schedule.test_every")


@dataclass(frozen=True)
class DetectConfig(RunConfig):
    """Settings of `csml detect`."""

    weights: str | None = None
    """Backbone to start from: a run directory or a weight file, from csml or another trainer, or `random` for a
    randomly initialised model.backbone. The word --weights may be omitted."""
    data: Sources = common(Sources("synthetic"))
    """A folder with annotated images in any layout that `csml scenes` understands, or synthetic."""
    format: Format = "auto"
    """Format of the annotations. voc: an XML file per image, with or without lists; coco: JSON files of any name; yolo:
    text files; masks: PNG files with a value per object, or a file per object; fiftyone: samples.json. auto: detect
    it."""
    train: tuple[str, ...] = common(())
    """Images to train on, if not those that the data defines: train, val or test; a list of VOC, such as
    VOC2007/trainval; a JSON file of COCO. Or several, '["VOC2007/train", "VOC2012/val"]'. By default VOC's choice, or
    the part named train."""
    test: tuple[str, ...] = common(())
    """Images to test on, in the same way. By default VOC's choice, or the part named val, otherwise test."""
    split: float | None = common(bounded(None, above=0, below=1))
    """Share of all annotated images to test on, drawn by scenes.split_seed so that every class is in both parts. By
    default 0.2 if the data has no images to test on."""
    batch_size: int = common(bounded(16, low=1, limit=MAX_BATCH))
    """Images per step."""
    voc_points: Literal["11", "all"] = "11"
    """How VOC's AP is computed: from the precision at 11 recalls (VOC 2007, as papers report it), or as the area under
    the whole curve."""
    model: BackboneConfig = BackboneConfig()
    scenes: ScenesConfig = ScenesConfig()
    detector: DetectorConfig = DetectorConfig()
    schedule: DetectScheduleConfig = DetectScheduleConfig()

    def check(self) -> None:
        small = min(self.scenes.short_sides) < 64
        require(self.batch_size > 1 or not small, "batch_size", "at least 2 for images below 64 pixels, not 1")
        require(not self.hardware.compile, "hardware.compile", "detectors cannot be compiled; leave it out")
        named = self.format != "auto" or self.train or self.test or self.split
        require(
            self.data != "synthetic" or not named,
            "data",
            "synthetic scenes have no format, no lists and no split; give a folder with annotations",
        )


@dataclass(frozen=True)
class ScoreConfig(Settings):
    """Settings of `csml score`."""

    data: str | None = common(None)
    """A folder with annotated images in any layout that `csml scenes` understands."""
    format: Format = "auto"
    """Format of the annotations, as in `csml detect`."""
    test: tuple[str, ...] = common(())
    """Images to score on: train, val or test, a list, or a JSON file. By default all annotated images."""
    out: str | None = common(None)
    """Folder for scores, detections and pictures; by default the next free runs/NAME-score-001."""
    batch_size: int = bounded(8, low=1, limit=MAX_BATCH)
    """Images per batch."""
    voc_points: Literal["11", "all"] = "11"
    """How VOC's AP is computed, as in `csml detect`."""
    scenes: ScenesConfig = ScenesConfig()
    hardware: HardwareConfig = HardwareConfig()


@dataclass(frozen=True)
class ScenesOfConfig(Settings):
    """Settings of `csml scenes`."""

    format: Format = "auto"
    """Format of the annotations, as in `csml detect`."""
    train: tuple[str, ...] = ()
    """Images to train on, as in `csml detect`."""
    test: tuple[str, ...] = ()
    """Images to test on, as in `csml detect`."""
    split: float | None = bounded(None, above=0, below=1)
    """Share of all annotated images to test on, as in `csml detect`."""
    sheet: str | None = None
    """An image file to draw: twenty images with their annotations as csml reads them. By default scenes.png, from
    Python none."""
    coco: str | None = None
    """A folder to write: the same images and annotations in COCO's layout."""
    repairs: str | None = None
    """A .csv file to write: every problem in the annotations, and how it was handled."""
    scenes: ScenesConfig = ScenesConfig()
