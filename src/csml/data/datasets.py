"""Images that the caller passes as objects: arrays, tensors, and map-style datasets."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from csml.data.decode import DecodeError, to_rgb
from csml.data.images import UNLABELED, ArrayImages, FileImages, Images
from csml.errors import CsmlError
from csml.files import cache_key
from csml.progress import watched

_SAMPLED = 16
"""Images whose pixels go into the fingerprint of a dataset; hashing all would decode it once more."""


def images_of(data: Any) -> Images:
    """Convert an object that was passed as `data` to `Images`.

    Args:
        data: `Images`; an array or tensor of images `(N, H, W, 3)`, `(N, 3, H, W)` or `(N, H, W)`, uint8 or floats in
            [0, 1]; a tuple of such an array and N labels; or a map-style dataset whose items are an image, or a tuple
            that starts with an image and its label. An image is a PIL image, an array or a tensor.
    """
    if isinstance(data, ArrayImages | FileImages) or hasattr(data, "cut"):
        return data
    if isinstance(data, np.ndarray | Tensor):
        return _from_array(data, None)
    if isinstance(data, tuple) and len(data) == 2 and isinstance(data[0], np.ndarray | Tensor):
        return _from_array(data[0], data[1])
    if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        if not len(data):
            raise CsmlError("data: the dataset is empty")
        return DatasetImages(data)
    raise CsmlError(f"data: expected a folder, an array of images or a dataset, got {type(data).__name__}")


class DatasetImages(FileImages):
    """A map-style dataset, such as torchvision's without transforms.

    Args:
        dataset: items are images, or tuples of image and label.
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        labels = _labels_of(dataset)
        self.labels, self.classes = _as_classes(labels, getattr(dataset, "classes", None), len(dataset))

    def __len__(self) -> int:
        return len(self.dataset)

    def name(self, id: int) -> str:
        return f"{type(self.dataset).__name__}/{id}"

    def fingerprint(self) -> str:
        ids = np.unique(np.linspace(0, len(self) - 1, _SAMPLED).astype(int)).tolist()
        pixels = [np.asarray(self.open(id).rgb()).tobytes() for id in ids]
        return cache_key(type(self.dataset).__name__, len(self), self.labels.tobytes(), *pixels)

    def source(self, id: int) -> Path | BytesIO:
        raise NotImplementedError("the items of a dataset are decoded already")

    def open(self, id: int) -> "_Decoded":  # type: ignore[override]
        try:
            item = self.dataset[id]
            return _Decoded(as_picture(item[0] if isinstance(item, tuple | list) else item))
        except CsmlError:
            raise
        except Exception as error:  # decoders raise all kinds of exceptions on damaged images
            raise DecodeError(f"{self.name(id)}: {error or type(error).__name__}") from error


class _Decoded:
    """A picture with the interface of `Picture`, for `cut_picture`."""

    def __init__(self, image: Image.Image) -> None:
        self.image = image
        self.height, self.width = image.height, image.width

    def rgb(self, shrink: int = 1) -> Image.Image:
        return self.image


def as_picture(image: Any) -> Image.Image:
    """A PIL image, an array `(H, W[, 3])`, or a tensor `(3, H, W)` as an RGB picture."""
    if isinstance(image, Image.Image):
        return to_rgb(image)
    if isinstance(image, np.ndarray | Tensor):
        return Image.fromarray(_as_pixels(np.asarray(image)[None])[0])
    raise CsmlError(f"data: an item of the dataset is a {type(image).__name__}, not an image; leave transforms out")


def _from_array(data: Any, labels: Any) -> ArrayImages:
    pixels = _as_pixels(np.asarray(data))
    known, classes = _as_classes(None if labels is None else list(np.asarray(labels)), None, len(pixels))
    title = f"array-{cache_key(pixels.shape, pixels[:: max(1, len(pixels) // _SAMPLED)].tobytes(), known.tobytes())}"
    return ArrayImages(pixels, known, classes, title)


def _as_pixels(values: np.ndarray) -> np.ndarray:
    """`(N, H, W[, C])` or `(N, C, H, W)`, uint8 or floats in [0, 1] → uint8 `(N, H, W, 3)`."""
    if values.ndim == 3:
        values = values[..., None]
    if values.ndim == 4 and values.shape[-1] not in (1, 3) and values.shape[1] in (1, 3):
        values = np.moveaxis(values, 1, -1)
    if values.ndim != 4 or values.shape[-1] not in (1, 3) or not len(values):
        raise CsmlError(f"data: expected images as (N, H, W, 3) or (N, 3, H, W), got {values.shape}")
    if np.issubdtype(values.dtype, np.floating):
        if not np.isfinite(values).all() or values.min() < 0 or values.max() > 1:
            raise CsmlError("data: floating-point images must lie in [0, 1]; give uint8 images otherwise")
        values = (values * 255).round().astype(np.uint8)
    if values.dtype != np.uint8:
        raise CsmlError(f"data: expected uint8 images or floats in [0, 1], got {values.dtype}")
    return np.ascontiguousarray(np.broadcast_to(values, (*values.shape[:3], 3)))


def _labels_of(dataset: Any) -> list[Any] | None:
    """The labels of a dataset: its `targets`, or the second entry of its items; None if it has neither."""
    targets = getattr(dataset, "targets", None)
    if targets is not None and len(targets) == len(dataset):
        return torch.as_tensor(targets).tolist() if isinstance(targets, Tensor) else list(targets)
    first = dataset[0]
    if not isinstance(first, tuple | list) or len(first) < 2:
        return None
    return [dataset[id][1] for id in watched(range(len(dataset)), "reading labels", total=len(dataset))]


def _as_classes(
    labels: list[Any] | None, names: Sequence[str] | None, count: int
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Labels as int64 `(N,)`, and the names of the classes."""
    if labels is None:
        return np.full(count, UNLABELED, np.int64), ()
    if len(labels) != count:
        raise CsmlError(f"data: {len(labels)} labels for {count} images")
    plain = [label.item() if hasattr(label, "item") else label for label in labels]
    if names is not None and all(isinstance(label, int) and 0 <= label < len(names) for label in plain):
        return np.array(plain, np.int64), tuple(map(str, names))
    classes = sorted(set(plain), key=lambda label: (str(type(label)), label))
    place = {label: number for number, label in enumerate(classes)}
    return np.array([place[label] for label in plain], np.int64), tuple(map(str, classes))
