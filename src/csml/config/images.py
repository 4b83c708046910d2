"""Settings of images: how they are read and augmented."""

from dataclasses import dataclass
from typing import Literal

from csml.config.fields import Settings, bounded, common, interval, share

NAMED = ("synthetic", "cifar10", "cifar100", "stl10")
"""Data sets that are chosen by name instead of by folder."""

MAX_SIDE = 16_384
"""Largest side of an image in pixels in any setting."""


@dataclass(frozen=True)
class ImagesConfig(Settings):
    """How images are read."""

    size: int = common(bounded(224, low=8, limit=MAX_SIDE, unit="pixels"))
    """Side of the square crops that the network learns from, in pixels."""
    eval_size: int | None = common(bounded(None, low=8, limit=MAX_SIDE, unit="pixels"))
    """Side of the images whose features are used: to evaluate, search, label, predict and export. At least and by
    default `size`. Larger costs more per image and is mostly better: a random crop shows objects larger than the whole
    image does, so whole images at twice the side match the training crops."""
    eval_crop: float = bounded(0.875, above=0, high=1)
    """Share of the shorter side that the centre crop keeps in evaluation. 0.875 crops 224 from 256; use 1 for tiny
    images."""
    channels: int = bounded(3, low=1, high=64)
    """Channels of an image: 3 for colour, to which grey images are converted; 1 for grey; otherwise every file must
    have as many (microscopes, satellites). Colour jitter, beside brightness and contrast, needs 3."""
    sixteen_bit: Literal["full", "percentile"] = "full"
    """How values of 16 bits become 8. full: 65 535 becomes 255. percentile: each channel of each image is stretched
    from its 0.5 to its 99.5 percentile, for sensors that use a part of the range."""
    labels: Literal["auto", "folders", "none"] = "auto"
    """Whether the names of the first-level folders are classes. auto: yes if every image is exactly one folder deep."""
    max_failed: float = share(0.05)
    """Share of the files that may fail to decode before the run stops."""
    test: Literal["test", "validation"] = "test"
    """Images that accuracies are measured on. validation: a fixed fifth of each class of the training images, which is
    then not used for training, while the test images are not used at all. Compare settings with it, and report the
    chosen one with test."""
    sample: int | None = bounded(None, low=2, limit=10**9)
    """Use only this many training images, always the same ones, spread evenly over the classes. For quick trials; a
    command that uses labels (knn, linear, finetune, mine) does not inherit it from the run."""
    synthetic_train: int = bounded(6000, low=2, limit=10**8)
    """Number of training images if data is `synthetic`."""
    synthetic_val: int = bounded(1000, low=1, limit=10**8)
    """Number of validation images if data is `synthetic`."""
    synthetic_size: int | None = bounded(None, low=8, limit=4096, unit="pixels")
    """Side of the synthetic images in pixels; by default `size`."""
    cache: Literal["auto", "on", "off"] = "auto"
    """Keep decoded images in csml's cache, reduced to what crops need, so that each file of a folder is decoded once
    instead of in every epoch. auto: if the images of all folders together fit into `cache_gb`. Crops differ from those
    of `off` by one more resize."""
    cache_gb: float = bounded(8.0, above=0, limit=1e6)
    """Size limit of the decoded images of all folders together, in gigabytes; those unused for longest are removed for
    new ones."""
    workers: int | None = common(bounded(None, low=0, limit=1024))
    """Processes that decode images. By default none for data in memory and for decoded images (`cache`), one if the CPU
    trains, otherwise one per spare core. More workers than spare cores make training slower."""

    @property
    def center_size(self) -> int:
        """Side of the centre crops whose features are used."""
        return max(self.size, self.eval_size or 0)


@dataclass(frozen=True)
class AugmentationConfig(Settings):
    """Random augmentation of each view, as in MoCo v2; drawn independently for every view."""

    crop_scale: tuple[float, float] | None = interval(None, above=0, high=1)
    """Share of the image area that a random crop keeps. By default [0.2, 1]; with small crops [0.14, 1]. Raise the
    lower end if objects are small and get lost."""
    crop_ratio: tuple[float, float] = interval((0.75, 4 / 3), above=0, limit=100)
    """Aspect ratio of a random crop."""
    flip: float = share(0.5)
    """Probability of a horizontal flip. Set it to 0 if left and right differ in meaning (text, faces in profile)."""
    jitter: float = share(0.8)
    """Probability of colour jitter."""
    brightness: float = bounded(0.4, low=0, limit=100)
    """Strength of the brightness jitter: a factor from [1 − strength, 1 + strength]."""
    contrast: float = bounded(0.4, low=0, limit=100)
    """Strength of the contrast jitter, in the same way."""
    saturation: float = bounded(0.4, low=0, limit=100)
    """Strength of the saturation jitter, in the same way."""
    hue: float = bounded(0.1, low=0, high=0.5)
    """Largest hue shift, as a share of the colour circle. Lower it if colour distinguishes your classes."""
    gray: float = share(0.2)
    """Probability of conversion to greyscale."""
    blur: float = share(0.5)
    """Probability of a Gaussian blur. Lower it, or set it to 0, for images of about 32 pixels."""
    blur_sigma: tuple[float, float] = interval((0.1, 2.0), above=0, limit=100)
    """Standard deviation of the blur in pixels, drawn uniformly."""
    solarize: float = share(0.0)
    """Probability of solarisation: pixels brighter than the middle grey are inverted."""
    key_blur: float | None = share(None)
    """Probability of a blur in key views, if it differs from `blur` (BYOL: 1 for queries, 0.1 for keys)."""
    key_solarize: float | None = share(None)
    """Probability of solarisation in key views, if it differs from `solarize` (BYOL: 0 for queries, 0.2 for keys)."""
