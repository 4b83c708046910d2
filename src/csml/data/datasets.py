"""Images that the caller passes as objects: arrays, tensors, and map-style datasets."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from csml.data.bit_depth import COLOUR, Reading, as_bytes, false_colour
from csml.data.decode import Decodable, DecodeError, bands_of
from csml.data.images import FINGERPRINTED, UNLABELED, ArrayImages, FileImages, Images, fingerprint_ids
from csml.errors import CsmlError
from csml.files import cache_key
from csml.progress import watched


def images_of(data: Any, reading: Reading = COLOUR) -> Images:
    """Convert an object passed as `data` to `Images`.

    Args:
        data: `Images`; an array or tensor of images `(N, H, W, C)`, `(N, C, H, W)` or `(N, H, W)`, uint8, uint16 or
            floats in [0, 1]; a tuple of such an array and N labels; or a map-style dataset whose items are an image, or
            a tuple that starts with an image and its label. An image is a PIL image, an array or a tensor.
        reading: C, and how 16 bits become 8; if C is 3, a single channel is repeated.
    """
    if isinstance(data, ArrayImages | FileImages) or hasattr(data, "cut"):
        return data
    if isinstance(data, np.ndarray | Tensor):
        return _from_array(data, None, reading)
    if isinstance(data, tuple) and len(data) == 2 and isinstance(data[0], np.ndarray | Tensor):
        return _from_array(data[0], data[1], reading)
    if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        if not len(data):
            raise CsmlError("data: the dataset is empty")
        return DatasetImages(data, reading)
    raise CsmlError(f"data: expected a folder, an array of images or a dataset, got {type(data).__name__}")


class DatasetImages(FileImages):
    """A map-style dataset, such as torchvision's without transforms.

    Args:
        dataset: items are images, or tuples of image and label.
        reading: channels and depth.
    """

    def __init__(self, dataset: Any, reading: Reading = COLOUR) -> None:
        self.dataset, self.reading = dataset, reading
        labels = _labels_of(dataset)
        self.labels, self.classes = _as_classes(labels, getattr(dataset, "classes", None), len(dataset))

    def __len__(self) -> int:
        return len(self.dataset)

    def name(self, id: int) -> str:
        return f"{type(self.dataset).__name__}/{id}"

    def fingerprint(self) -> str:
        pixels = [
            b"".join(np.asarray(band).tobytes() for band in self.open(id).bands()) for id in fingerprint_ids(self)
        ]
        return cache_key(type(self.dataset).__name__, len(self), self.labels.tobytes(), *pixels)

    def source(self, id: int) -> Path | BytesIO:
        raise NotImplementedError("the items of a dataset are decoded already")

    def open(self, id: int) -> Decodable:
        try:
            item = self.dataset[id]
            return _Decoded(as_bands(item[0] if isinstance(item, tuple | list) else item, self.reading))
        except CsmlError:
            raise
        except Exception as error:  # decoders raise all kinds of exceptions on damaged images
            raise DecodeError(f"{self.name(id)}: {error or type(error).__name__}") from error


class _Decoded:
    """A `Decodable` picture in memory."""

    def __init__(self, bands: tuple[Image.Image, ...]) -> None:
        self._bands = bands
        self.height, self.width = bands[0].height, bands[0].width
        self.deep = False

    def rgb(self, shrink: float = 1) -> Image.Image:
        return false_colour(np.concatenate([np.atleast_3d(np.asarray(band)) for band in self._bands], axis=2))

    def bands(self, shrink: float = 1) -> tuple[Image.Image, ...]:
        return self._bands


def as_bands(image: Any, reading: Reading) -> tuple[Image.Image, ...]:
    """A PIL image, an array `(H, W[, C])`, or a tensor `(C, H, W)` as pictures of one or three channels."""
    if isinstance(image, Image.Image):
        return bands_of(image, reading)
    if isinstance(image, np.ndarray | Tensor):
        pixels = _as_pixels(_array(image)[None], reading)[0]  # (H, W, C)
        if reading.channels == 3:
            return (Image.fromarray(pixels),)
        return tuple(Image.fromarray(np.ascontiguousarray(pixels[..., c])) for c in range(reading.channels))
    raise CsmlError(f"data: an item of the dataset is a {type(image).__name__}, not an image; leave transforms out")


def _from_array(data: Any, labels: Any, reading: Reading) -> ArrayImages:
    pixels = _as_pixels(_array(data), reading)
    labels = _array(labels) if isinstance(labels, Tensor) else labels
    known, classes = _as_classes(None if labels is None else list(labels), None, len(pixels))
    title = (
        f"array-{cache_key(pixels.shape, pixels[:: max(1, len(pixels) // FINGERPRINTED)].tobytes(), known.tobytes())}"
    )
    return ArrayImages(pixels, known, classes, title)


def _array(values: np.ndarray | Tensor) -> np.ndarray:
    """The values of an array, or of a tensor on any device."""
    if isinstance(values, np.ndarray):
        return values
    try:
        return (values.float() if values.dtype == torch.bfloat16 else values).numpy(force=True)
    except TypeError as error:  # numpy has no such numbers
        raise CsmlError(f"data: expected uint8 images or floats in [0, 1], got {values.dtype}") from error


def _as_pixels(values: np.ndarray, reading: Reading) -> np.ndarray:
    """`(N, H, W[, C])` or `(N, C, H, W)`, uint8, uint16 or floats in [0, 1] → uint8 `(N, H, W, C)`."""
    wanted = reading.channels
    known = (1, 3) if wanted == 3 else (wanted,)
    if values.ndim == 3:
        values = values[..., None]
    if values.ndim == 4 and values.shape[-1] not in known and values.shape[1] in known:
        values = np.moveaxis(values, 1, -1)
    if values.ndim != 4 or values.shape[-1] not in known or not len(values):
        raise CsmlError(f"data: expected images as (N, H, W, {wanted}) or (N, {wanted}, H, W), got {values.shape}")
    if values.dtype == np.uint16:
        values = np.stack([as_bytes(image, reading) for image in values])
    if np.issubdtype(values.dtype, np.floating):
        if not np.isfinite(values).all() or values.min() < 0 or values.max() > 1:
            raise CsmlError("data: floating-point images must lie in [0, 1]; give uint8 images otherwise")
        values = (values * 255).round().astype(np.uint8)
    if values.dtype != np.uint8:
        raise CsmlError(f"data: expected uint8 images or floats in [0, 1], got {values.dtype}")
    return np.ascontiguousarray(np.broadcast_to(values, (*values.shape[:3], wanted)))


def _labels_of(dataset: Any) -> list[Any] | None:
    """The labels of a dataset: its `targets`, or the second entry of its items; None if it has neither."""
    targets, listed = getattr(dataset, "targets", None), None
    if targets is not None and len(targets) == len(dataset):
        listed = torch.as_tensor(targets).tolist() if isinstance(targets, Tensor) else list(targets)
        if not isinstance(listed[0], str):  # torchvision's VOCDetection lists the paths of annotations
            return listed
    first = dataset[0]
    if not isinstance(first, tuple | list) or len(first) < 2:
        return listed
    _as_class(first[1])  # before all are read
    if listed is not None:
        return listed
    return [dataset[id][1] for id in watched(range(len(dataset)), "reading labels", total=len(dataset))]


def _as_class(label: Any) -> Any:
    """A label as a number or a text of Python."""
    try:
        plain = label.item() if hasattr(label, "item") else label
        hash(plain)
    except (TypeError, ValueError, RuntimeError) as error:  # several numbers, or a description of objects
        raise CsmlError(
            f"data: the labels are {type(label).__name__.lower()}s, not classes; "
            "give items that are an image, or an image and one number or name"
        ) from error
    return plain


def _as_classes(
    labels: list[Any] | None, names: Sequence[str] | None, count: int
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Labels as int64 `(N,)`, and the names of the classes."""
    if labels is None:
        return np.full(count, UNLABELED, np.int64), ()
    if len(labels) != count:
        raise CsmlError(f"data: {len(labels)} labels for {count} images")
    plain = [_as_class(label) for label in labels]
    if names is not None and all(isinstance(label, int) and 0 <= label < len(names) for label in plain):
        return np.array(plain, np.int64), tuple(map(str, names))
    classes = sorted(set(plain), key=lambda label: (str(type(label)), label))
    place = {label: number for number, label in enumerate(classes)}
    return np.array([place[label] for label in plain], np.int64), tuple(map(str, classes))
