"""Crops against torchvision's."""

import numpy as np
import torch
import torchvision.transforms.v2.functional as TF
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms import RandomResizedCrop

from csml.pixels import CROP_NUMBERS, center_boxes, crop_resize, random_boxes


def smooth_images(count: int, height: int, width: int) -> torch.Tensor:
    rng = np.random.default_rng(0)
    small = rng.integers(0, 256, (count, 6, 7, 3), dtype=np.uint8)
    return torch.from_numpy(np.stack([np.asarray(Image.fromarray(s).resize((width, height))) for s in small]))


@given(
    height=st.integers(1, 300),
    width=st.integers(1, 300),
    low=st.floats(0.01, 1.0),
    seed=st.integers(0, 1000),
)
def test_random_boxes_lie_inside_the_picture(height: int, width: int, low: float, seed: int) -> None:
    numbers = torch.rand(20, CROP_NUMBERS, generator=torch.Generator().manual_seed(seed))
    boxes = random_boxes(numbers, torch.tensor([[height, width]]).expand(20, 2), (low, 1.0), (3 / 4, 4 / 3))
    top, left, h, w = boxes.unbind(1)
    assert (top >= 0).all()
    assert (left >= 0).all()
    assert (h >= 1).all()
    assert (w >= 1).all()
    assert (top + h <= height).all()
    assert (left + w <= width).all()


def test_random_boxes_are_distributed_as_torchvision_s() -> None:
    n, height, width, scale, ratio = 4000, 60, 90, (0.2, 1.0), (3 / 4, 4 / 3)
    numbers = torch.rand(n, CROP_NUMBERS, generator=torch.Generator().manual_seed(0))
    ours = random_boxes(numbers, torch.tensor([[height, width]]).expand(n, 2), scale, ratio).float()
    torch.manual_seed(0)
    picture = torch.zeros(3, height, width)
    theirs = torch.tensor([RandomResizedCrop.get_params(picture, list(scale), list(ratio)) for _ in range(n)]).float()
    for column in range(4):
        quantiles = torch.tensor([0.1, 0.25, 0.5, 0.75, 0.9])
        difference = ours[:, column].quantile(quantiles) - theirs[:, column].quantile(quantiles)
        assert difference.abs().max() <= 3.0  # of 60 or 90 pixels


@given(seed=st.integers(0, 1000), size=st.sampled_from([8, 24, 32, 64]))
def test_crop_resize_is_torchvision_s_resized_crop(seed: int, size: int) -> None:
    images = smooth_images(3, 48, 40)
    numbers = torch.rand(3, CROP_NUMBERS, generator=torch.Generator().manual_seed(seed))
    boxes = random_boxes(numbers, torch.tensor([[48, 40]]).expand(3, 2), (0.1, 1.0), (3 / 4, 4 / 3))
    ours = crop_resize(images, boxes, size)
    for image, box, crop in zip(images, boxes.tolist(), ours, strict=True):
        theirs = TF.resized_crop(image.permute(2, 0, 1), *box, [size, size], antialias=True)
        assert (theirs.int() - crop.int()).abs().max() <= 1


def test_the_whole_picture_at_its_own_size_is_unchanged() -> None:
    images = smooth_images(2, 32, 32)
    boxes = torch.tensor([[0, 0, 32, 32]]).expand(2, 4)
    assert torch.equal(crop_resize(images, boxes, 32), images.permute(0, 3, 1, 2))


def test_center_box_is_resize_then_center_crop() -> None:
    image = smooth_images(1, 300, 400)
    boxes = center_boxes(torch.tensor([[300, 400]]), 0.875)
    ours = crop_resize(image, boxes, 224)[0]
    theirs = TF.center_crop(TF.resize(image[0].permute(2, 0, 1), [256], antialias=True), [224, 224])
    assert (ours.float() - theirs.float()).abs().mean() < 1.0
