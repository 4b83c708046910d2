"""All that a setting may not be, in one place; every message names the key and what would be right."""

from csml.config.detection import DetectConfig, DetectorConfig
from csml.config.protocols import KnnConfig, LinearConfig
from csml.config.schema import (
    AugmentationConfig,
    ByolConfig,
    ContrastConfig,
    FinetuneConfig,
    HardwareConfig,
    ImagesConfig,
    MineConfig,
    OptimizerConfig,
    PretrainConfig,
    RunConfig,
    SupervisedConfig,
    TrainingConfig,
)
from csml.errors import CsmlError

_LARGEST_STAGE = 4


def _require(condition: bool, key: str, problem: str) -> None:
    if not condition:
        raise CsmlError(f"{key}: {problem}")


def _probability(key: str, value: float) -> None:
    _require(0 <= value <= 1, key, f"a probability lies between 0 and 1, not at {value:g}")


def _interval(key: str, value: tuple[float, float], low: float, high: float) -> None:
    _require(
        low < value[0] <= value[1] <= high,
        key,
        f"two numbers a ≤ b above {low:g}" + (f" and at most {high:g}" if high < 1e9 else "") + f", not {list(value)}",
    )


def check_pretrain(config: PretrainConfig) -> None:
    """What can be judged without looking at the data."""
    _check_training(config)
    _require(config.monitor.knn_every >= 0, "monitor.knn_every", "0 (never) or more")
    _check_views(config)
    _check_backbone(config.model.backbone)
    _check_heads(config)
    _check_framework(config)


def check_supervised(config: SupervisedConfig) -> None:
    """Settings of `csml supervised` and `csml finetune`."""
    _check_training(config)
    _check_backbone(config.model.backbone)
    share = config.fraction
    _require(share is None or 0 < share <= 1, "fraction", f"above 0 and at most 1, not {share}")
    _require(0 <= config.holdout < 1, "holdout", f"at least 0 and below 1, not {config.holdout:g}")
    if isinstance(config, FinetuneConfig):
        _require(config.head_lr_per_256 > 0, "head_lr_per_256", f"above 0, not {config.head_lr_per_256:g}")


def check_mine(config: MineConfig) -> None:
    """Settings of `csml mine`."""
    _check_training(config)
    _require(config.head_lr_per_256 > 0, "head_lr_per_256", f"above 0, not {config.head_lr_per_256:g}")
    _require(config.max_entropy > 0, "max_entropy", f"above 0, not {config.max_entropy:g}")
    _require(config.rounds >= 1, "rounds", f"at least 1, not {config.rounds}")


def _check_training(config: TrainingConfig) -> None:
    _require(config.epochs >= 1, "epochs", f"at least 1, not {config.epochs}")
    _require(config.batch_size >= 2, "batch_size", f"at least 2, not {config.batch_size}")
    _check_run(config)
    check_images(config.images)
    _check_augmentation(config.augmentation)
    _check_optimizer(config.optimizer)


def check_detect(config: DetectConfig) -> None:
    """Settings of `csml detect`."""
    _check_run(config)
    _check_backbone(config.model.backbone)
    _require(config.batch_size >= 1, "batch_size", f"at least 1, not {config.batch_size}")
    scenes, detector, schedule = config.scenes, config.detector, config.schedule
    _require(
        len(scenes.short_sides) > 0 and min(scenes.short_sides) >= 32, "scenes.short_sides", "at least 32 pixels each"
    )
    _require(scenes.test_side >= 32, "scenes.test_side", f"at least 32 pixels, not {scenes.test_side}")
    longest = max(scenes.test_side, *scenes.short_sides)
    _require(scenes.max_side >= longest, "scenes.max_side", f"at least the longest short side, {longest}")
    _probability("scenes.flip", scenes.flip)
    _require(0 <= scenes.max_failed <= 1, "scenes.max_failed", f"a share between 0 and 1, not {scenes.max_failed:g}")
    _require(scenes.workers is None or scenes.workers >= 0, "scenes.workers", "0 or more")
    for name in ("synthetic_train", "synthetic_val"):
        _require(getattr(scenes, name) >= 1, f"scenes.{name}", "at least 1")
    _require(scenes.synthetic_size >= 32, "scenes.synthetic_size", f"at least 32 pixels, not {scenes.synthetic_size}")
    _check_detector(detector)
    shares = schedule.milestones
    _require(all(0 < share < 1 for share in shares), "schedule.milestones", f"shares of the run, not {list(shares)}")
    _require(
        config.batch_size > 1 or min(scenes.short_sides) >= 64, "batch_size", "at least 2 for images below 64 pixels"
    )
    _require(not config.hardware.compile, "hardware.compile", "detectors are not compiled; leave it out")
    for name in ("iterations", "lr_per_16", "report_every"):
        _require(getattr(schedule, name) > 0, f"schedule.{name}", f"above 0, not {getattr(schedule, name):g}")
    _require(schedule.warmup >= 0, "schedule.warmup", f"0 or more, not {schedule.warmup}")
    _require(0 <= schedule.momentum < 1, "schedule.momentum", f"at least 0 and below 1, not {schedule.momentum:g}")
    _require(schedule.weight_decay >= 0, "schedule.weight_decay", f"0 or more, not {schedule.weight_decay:g}")
    if config.data == "synthetic":
        named = config.format != "auto" or config.train or config.test
        _require(not named, "data", "synthetic scenes have no format and no lists; give the folder they are in")


def _check_detector(detector: DetectorConfig) -> None:
    sides = detector.anchors
    _require(len(sides) > 0 and min(sides) >= 1, "detector.anchors", f"sides of at least 1 pixel, not {list(sides)}")
    if detector.kind == "fpn":
        _require(len(sides) == 5, "detector.anchors", f"one for each of the five levels of an fpn, not {len(sides)}")
    _require(detector.kind == "fpn" or not detector.masks, "detector.masks", "needs --detector.kind fpn")
    for name in ("roi_side", "channels", "head_width", "proposals", "rois", "max_detections"):
        _require(getattr(detector, name) >= 2, f"detector.{name}", f"at least 2, not {getattr(detector, name)}")
    _require(0 <= detector.min_score < 1, "detector.min_score", f"at least 0 and below 1, not {detector.min_score:g}")
    _require(0 < detector.nms <= 1, "detector.nms", f"above 0 and at most 1, not {detector.nms:g}")


def _check_run(config: RunConfig) -> None:
    _require(config.seed >= 0, "seed", f"0 or more, not {config.seed}")
    settings = config.checkpoint
    _require(settings.every_epochs >= 1, "checkpoint.every_epochs", f"at least 1, not {settings.every_epochs}")
    _require(settings.every_minutes > 0, "checkpoint.every_minutes", f"above 0, not {settings.every_minutes:g}")
    _require(settings.every_steps is None or settings.every_steps >= 1, "checkpoint.every_steps", "at least 1")
    _require(settings.keep >= 1, "checkpoint.keep", f"at least 1, not {settings.keep}")
    _check_hardware(config.hardware)


def check_images(images: ImagesConfig) -> None:
    """What every command that reads images needs."""
    _require(images.size >= 8, "images.size", f"at least 8 pixels, not {images.size}")
    _require(0 < images.eval_crop <= 1, "images.eval_crop", f"above 0 and at most 1, not {images.eval_crop:g}")
    _require(0 <= images.max_failed <= 1, "images.max_failed", f"a share between 0 and 1, not {images.max_failed:g}")
    _require(images.workers is None or images.workers >= 0, "images.workers", "0 or more")
    _require(images.sample is None or images.sample >= 2, "images.sample", "at least 2")
    _require(images.synthetic_train >= 2, "images.synthetic_train", "at least 2")
    _require(images.synthetic_val >= 1, "images.synthetic_val", "at least 1")
    smallest = images.synthetic_size
    _require(smallest is None or smallest >= 8, "images.synthetic_size", "at least 8 pixels")


def check_knn(config: KnnConfig) -> None:
    """Settings of `csml knn`."""
    check_images(config.images)
    _check_hardware(config.hardware)
    _require(len(config.k) > 0 and min(config.k) >= 1, "k", f"numbers of at least 1, not {list(config.k)}")
    _require(config.temperature > 0, "temperature", f"above 0, not {config.temperature:g}")
    check_stages("stage", (config.stage,))


def check_linear(config: LinearConfig) -> None:
    """Settings of `csml linear`."""
    check_images(config.images)
    _check_hardware(config.hardware)
    check_stages("stages", config.stages)
    for name in ("epochs", "batch_size", "lr"):
        _require(getattr(config, name) > 0, name, f"above 0, not {getattr(config, name):g}")
    _require(0 <= config.momentum < 1, "momentum", f"at least 0 and below 1, not {config.momentum:g}")
    _require(config.seed >= 0, "seed", f"0 or more, not {config.seed}")
    _interval("crop_scale", config.crop_scale, 0, 1)


def check_stages(key: str, stages: tuple[int, ...]) -> None:
    """Stages that every backbone has."""
    good = len(stages) > 0 and len(set(stages)) == len(stages) and all(1 <= s <= _LARGEST_STAGE for s in stages)
    _require(good, key, f"some of 1, 2, 3, 4, each once, not {list(stages)}")


def _check_hardware(settings: HardwareConfig) -> None:
    threads = settings.threads
    _require(settings.devices >= 1, "hardware.devices", f"at least 1, not {settings.devices}")
    _require(settings.accumulate >= 1, "hardware.accumulate", f"at least 1, not {settings.accumulate}")
    _require(threads is None or threads >= 1, "hardware.threads", f"at least 1, not {threads}")


def check_against_data(config: TrainingConfig, images: int) -> None:
    """What depends on how many images there are."""
    _require(
        config.batch_size <= images, "batch_size", f"at most the {images} images there are, not {config.batch_size}"
    )
    if isinstance(config, PretrainConfig) and config.views.cross_sample:
        k = config.neighbors.k
        _require(k < images, "neighbors.k", f"less than the {images} images there are, not {k}")


def _check_augmentation(settings: AugmentationConfig) -> None:
    for name in ("flip", "jitter", "gray", "blur", "solarize"):
        _probability(f"augmentation.{name}", getattr(settings, name))
    for name in ("key_blur", "key_solarize"):
        _probability(f"augmentation.{name}", getattr(settings, name) or 0.0)
    for name in ("brightness", "contrast", "saturation"):
        strength = getattr(settings, name)
        _require(strength >= 0, f"augmentation.{name}", f"0 or more, not {strength:g}")
    _require(0 <= settings.hue <= 0.5, "augmentation.hue", f"between 0 and 0.5, not {settings.hue:g}")
    if settings.crop_scale is not None:
        _interval("augmentation.crop_scale", settings.crop_scale, 0, 1)
    _interval("augmentation.crop_ratio", settings.crop_ratio, 0, 1e9)
    _interval("augmentation.blur_sigma", settings.blur_sigma, 0, 1e9)


def _check_views(config: PretrainConfig) -> None:
    views, neighbors = config.views, config.neighbors
    _require(
        views.cross_sample or views.mix == "none",
        "views.mix",
        "mixing needs a second image; give --views.cross_sample true (with --neighbors.k 0 it is the anchor itself) "
        "or --views.mix none",
    )
    _require(views.mix_alpha > 0, "views.mix_alpha", f"above 0, not {views.mix_alpha:g}")
    _require(neighbors.k >= 0, "neighbors.k", f"0 or more, not {neighbors.k}")
    _require(views.positives >= 1, "views.positives", f"at least 1, not {views.positives}")
    _require(
        neighbors.k == 0 or views.positives <= neighbors.k or not views.cross_sample,
        "views.positives",
        f"at most neighbors.k, which is {neighbors.k}, not {views.positives}",
    )
    _require(
        views.positives == 1 or views.cross_sample, "views.positives", "more than 1 need --views.cross_sample true"
    )
    _require(views.small_crops >= 0, "views.small_crops", f"0 or more, not {views.small_crops}")
    small, size = views.small_size, config.images.size
    _require(
        small is None or 8 <= small <= size, "views.small_size", f"from 8 to images.size, which is {size}, not {small}"
    )
    _interval("views.small_scale", views.small_scale, 0, 1)
    _require(neighbors.refresh_every >= 1, "neighbors.refresh_every", f"at least 1, not {neighbors.refresh_every}")
    _require(0 < neighbors.keep <= 1, "neighbors.keep", f"above 0 and at most 1, not {neighbors.keep:g}")
    _require(0 < neighbors.recall <= 1, "neighbors.recall", f"above 0 and at most 1, not {neighbors.recall:g}")
    _require(
        neighbors.features == "pass" or neighbors.warmup_epochs >= 1,
        "neighbors.features",
        "online needs an epoch of keys before the first search; give --neighbors.warmup_epochs 1 or more, or pass",
    )
    _require(neighbors.warmup_epochs >= 0, "neighbors.warmup_epochs", f"0 or more, not {neighbors.warmup_epochs}")


def _check_backbone(name: str) -> None:
    from csml.models.backbones import BACKBONES  # here, so that reading settings does not need torch

    _require(name in BACKBONES, "model.backbone", f"{name!r} is unknown; choose one of {', '.join(BACKBONES)}")


def _check_heads(config: PretrainConfig) -> None:
    model, stages = config.model, config.model.stages
    check_stages("model.stages", stages)
    _require(
        _LARGEST_STAGE in stages, "model.stages", f"4, the last stage, must be among them, not only {list(stages)}"
    )
    _require(model.dim >= 2, "model.dim", f"at least 2, not {model.dim}")
    _require(model.hidden is None or model.hidden >= 1, "model.hidden", "at least 1")


def _check_framework(config: PretrainConfig) -> None:
    if config.framework == "byol":
        for name in _changed(config.contrast, ContrastConfig()):
            problem = "BYOL has no queue, no negatives and no split BatchNorm; leave it out, or start from a preset"
            _require(False, f"contrast.{name}", f"{problem} such as demo-byol")
        _check_byol(config.byol)
    else:
        for name in _changed(config.byol, ByolConfig()):
            _require(False, f"byol.{name}", "means something only with BYOL; start from a preset such as demo-byol")
        _check_contrast(config.contrast)


def _changed(settings: ContrastConfig | ByolConfig, defaults: ContrastConfig | ByolConfig) -> list[str]:
    return [name for name, value in vars(settings).items() if value != getattr(defaults, name)]


def _check_byol(settings: ByolConfig) -> None:
    _require(0 <= settings.momentum <= 1, "byol.momentum", f"between 0 and 1, not {settings.momentum:g}")
    hidden = settings.predictor_hidden
    _require(hidden is None or hidden >= 1, "byol.predictor_hidden", f"at least 1, not {hidden}")


def _check_contrast(settings: ContrastConfig) -> None:
    _require(settings.temperature > 0, "contrast.temperature", f"above 0, not {settings.temperature:g}")
    _require(0 <= settings.momentum < 1, "contrast.momentum", f"at least 0 and below 1, not {settings.momentum:g}")
    length = settings.queue_length
    _require(length is None or length >= 1, "contrast.queue_length", f"at least 1, not {length}")
    _require(settings.loss_chunk >= 1, "contrast.loss_chunk", f"at least 1, not {settings.loss_chunk}")
    _require(settings.bn_splits >= 1, "contrast.bn_splits", f"at least 1, not {settings.bn_splits}")


def _check_optimizer(settings: OptimizerConfig) -> None:
    _require(settings.trust > 0, "optimizer.trust", f"above 0, not {settings.trust:g}")
    _require(settings.lr_per_256 > 0, "optimizer.lr_per_256", f"above 0, not {settings.lr_per_256:g}")
    _require(0 <= settings.momentum < 1, "optimizer.momentum", f"at least 0 and below 1, not {settings.momentum:g}")
    _require(settings.weight_decay >= 0, "optimizer.weight_decay", f"0 or more, not {settings.weight_decay:g}")
    _require(all(epoch >= 1 for epoch in settings.milestones), "optimizer.milestones", "epochs of at least 1")
    _require(
        settings.schedule == "steps" or not settings.milestones,
        "optimizer.milestones",
        "mean something only with --optimizer.schedule steps",
    )
    _require(settings.warmup_epochs >= 0, "optimizer.warmup_epochs", f"0 or more, not {settings.warmup_epochs:g}")
