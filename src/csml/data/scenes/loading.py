"""Batches of scenes, decoded, resized and flipped in worker processes, with targets in torchvision's form."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from csml.data.decode import DecodeError
from csml.data.images import FileImages, Images, Subset
from csml.data.loading import loader
from csml.data.scenes.annotations import Scenes, decode_masks
from csml.distributed.world import Part, whole
from csml.pixels import resized

Target = dict[str, Tensor]
"""boxes float32 `(O, 4)`, labels int64 `(O,)` from 1 (0 is the background), and optionally masks uint8 `(O, h, w)`.
Between processes, masks are sent as `packed`, with eight pixels per byte."""


class ScenePlan(NamedTuple):
    """The random choices for a batch, made in the main process."""

    ids: np.ndarray
    """`(B,)`"""
    sides: np.ndarray
    """`(B,)` shorter side in pixels"""
    flips: np.ndarray
    """`(B,)` bool"""
    part: Part | None = None
    """which rows of a batch these are; None for a whole batch"""

    def only(self, rows: slice, part: Part) -> "ScenePlan":
        """The plan of some rows of the batch."""
        is_whole = len(self.ids[rows]) == part.total
        return ScenePlan(self.ids[rows], self.sides[rows], self.flips[rows], None if is_whole else part)


class SceneBatch(NamedTuple):
    """B scenes, without those that could not be read."""

    ids: list[int]
    images: list[Tensor]
    """uint8 `(3, h, w)` each"""
    targets: list[Target]
    sizes: list[tuple[int, int]]
    """height and width before resizing"""
    failed: list[int]
    """ids of images that could not be read"""
    planned: Part | None = None
    """`part` of the plan"""

    @property
    def size(self) -> int:
        return len(self.images)

    @property
    def part(self) -> Part:
        """Which rows of the batch these are."""
        return self.planned or whole(self.size)


def scene_batches(
    scenes: Scenes, plans: Iterable[ScenePlan], max_side: int, masks: bool, workers: int, pin: bool = False
) -> Iterator[SceneBatch]:
    """Yield the batch of each plan, in order."""
    return iter(loader(_SceneReader(scenes, max_side, masks), plans, workers, pin))


def plans_in_order(scenes: int, batch_size: int, side: int) -> list[ScenePlan]:
    """All scenes in the order of their ids, with the same shorter side and without flips."""
    ids = np.arange(scenes)
    batches = [ids[start : start + batch_size] for start in range(0, scenes, batch_size)]
    return [ScenePlan(batch, np.full(len(batch), side), np.zeros(len(batch), bool)) for batch in batches]


class _SceneReader(Dataset[SceneBatch]):
    def __init__(self, scenes: Scenes, max_side: int, masks: bool) -> None:
        self.scenes, self.max_side, self.masks = scenes, max_side, masks

    def __getitem__(self, plan: ScenePlan) -> SceneBatch:
        batch = SceneBatch([], [], [], [], [], plan.part)
        for id, side, flip in zip(plan.ids.tolist(), plan.sides.tolist(), plan.flips.tolist(), strict=True):
            before = tuple(self.scenes.annotations.sizes[id].tolist())
            size = resized(before, side, self.max_side)
            try:
                image = _read(self.scenes.images, id, size, flip)
            except DecodeError:
                batch.failed.append(id)
                continue
            batch.ids.append(id)
            batch.images.append(image)
            batch.targets.append(self._target(id, before, size, flip))
            batch.sizes.append(before)
        if plan.part is not None and not batch.images:  # other processes wait for this one: use a black image
            batch.ids.append(id)
            batch.images.append(torch.zeros(3, *size, dtype=torch.uint8))
            batch.targets.append({key: values[:0] for key, values in self._target(id, before, size, False).items()})
            batch.sizes.append(before)
        return batch

    def _target(self, id: int, before: tuple[int, int], size: tuple[int, int], flip: bool) -> Target:
        objects = self.scenes.annotations.objects(id)
        learnt = ~objects.crowd
        if self.masks:
            learnt &= np.array([mask is not None for mask in objects.masks], dtype=bool)
        scale = np.array([size[1] / before[1], size[0] / before[0]] * 2, dtype=np.float32)
        boxes = objects.boxes[learnt] * scale  # (O, 4)
        if flip:
            boxes = np.stack([size[1] - boxes[:, 2], boxes[:, 1], size[1] - boxes[:, 0], boxes[:, 3]], axis=1)
        target = {"boxes": torch.from_numpy(boxes), "labels": torch.from_numpy(objects.labels[learnt] + 1)}
        if self.masks:
            kept = [objects.masks[row] for row in np.flatnonzero(learnt)]
            masks = _nearest(decode_masks([mask for mask in kept if mask is not None], before), size)
            masks = masks[:, :, ::-1] if flip else masks
            target["packed"] = torch.from_numpy(np.packbits(masks, axis=2))
        return target


def _read(images: Images, id: int, size: tuple[int, int], flip: bool) -> Tensor:
    """Read, resize and flip an image: uint8 `(3, h, w)`."""
    if isinstance(images, Subset):
        return _read(images.images, int(images.ids[id]), size, flip)
    if isinstance(images, FileImages):  # a JPEG need not be decoded at full size
        picture = images.open(id)
        decoded = picture.rgb(min(picture.height, picture.width) // (2 * min(size)))
    else:
        decoded = images.read(id)
    decoded = decoded.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    if flip:
        decoded = decoded.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return torch.from_numpy(np.array(decoded)).permute(2, 0, 1).contiguous()


def _nearest(masks: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Resize masks `(O, H, W)` → `(O, h, w)` with nearest-neighbour interpolation."""
    rows, columns = (
        ((np.arange(new) + 0.5) * old / new).astype(np.int64) for new, old in zip(size, masks.shape[1:], strict=True)
    )
    return masks[:, rows[:, None], columns]


def as_input(batch: SceneBatch, device: torch.device) -> tuple[list[Tensor], list[Target]]:
    """Images and targets on the device."""
    images = [image.to(device, non_blocking=True) for image in batch.images]
    targets = [_unpacked(target, image.shape[2]) for target, image in zip(batch.targets, images, strict=True)]
    return images, [{key: value.to(device, non_blocking=True) for key, value in t.items()} for t in targets]


def _unpacked(target: Target, width: int) -> Target:
    if "packed" not in target:
        return target
    rest = {key: value for key, value in target.items() if key != "packed"}
    return {**rest, "masks": torch.from_numpy(np.unpackbits(target["packed"].numpy(), axis=2, count=width))}
