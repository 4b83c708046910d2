"""Cuts from the pyramid against torchvision's RoIAlign."""

from collections import OrderedDict

import pytest
import torch
from torch import Tensor
from torchvision.ops import MultiScaleRoIAlign

from csml.models.detectors.roi_align import PyramidRoIAlign

NAMES, STRIDES = ["one", "two", "three"], [4, 8, 16]
IMAGES = [(96, 128), (90, 120)]


def pyramid(dtype: torch.dtype = torch.float32) -> "OrderedDict[str, Tensor]":
    generator = torch.Generator().manual_seed(0)
    return OrderedDict(
        (name, torch.randn(2, 5, 96 // stride, 128 // stride, generator=generator).to(dtype).requires_grad_())
        for name, stride in zip(NAMES, STRIDES, strict=True)
    )


def proposals(count: int) -> list[Tensor]:
    """Of all sizes, on the border and past it, and some smaller than a cell."""
    generator = torch.Generator().manual_seed(1)
    corners = torch.rand(2, count, 2, generator=generator) * torch.tensor([150.0, 110.0]) - 10
    sides = 2 ** (8 * torch.rand(2, count, 2, generator=generator) - 1)
    return list(torch.cat([corners, corners + sides], dim=2))


@pytest.mark.parametrize("side", [7, 14])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_cuts_and_gradients_are_those_of_torchvision(side: int, layout: torch.memory_format) -> None:
    ours = PyramidRoIAlign(NAMES, STRIDES, side, samples=2, usual_side=56, usual_level=3)
    theirs = MultiScaleRoIAlign(NAMES, side, 2, canonical_scale=56, canonical_level=3)
    boxes, outcomes = proposals(40), []
    for cut in (ours, theirs):
        maps = pyramid()
        laid_out = OrderedDict((name, fmap.contiguous(memory_format=layout)) for name, fmap in maps.items())
        result = cut(laid_out, boxes, IMAGES)
        assert result.shape == (80, 5, side, side)
        weights = torch.randn(result.shape, generator=torch.Generator().manual_seed(2))
        gradients = torch.autograd.grad((result * weights).sum(), list(maps.values()))
        outcomes.append([result.detach(), *gradients])
    assert len({int(level) for level in ours.map_levels(boxes)}) == 3
    for own, other in zip(*outcomes, strict=True):
        assert other.abs().max() > 0.5
        assert torch.allclose(own, other, atol=1e-4)


def test_an_image_without_proposals_and_none_at_all() -> None:
    cut = PyramidRoIAlign(NAMES, STRIDES, 7, samples=2, usual_side=56, usual_level=3)
    boxes = proposals(3)
    empty = boxes[0][:0]
    assert torch.equal(cut(pyramid(), [empty, boxes[1]], IMAGES), cut(pyramid(), boxes, IMAGES)[3:])
    assert cut(pyramid(), [empty, empty], IMAGES).shape == (0, 5, 7, 7)


def test_maps_in_bfloat16_are_summed_in_float32() -> None:
    cut = PyramidRoIAlign(NAMES, STRIDES, 7, samples=2, usual_side=56, usual_level=3)
    maps = pyramid(torch.bfloat16)
    result = cut(maps, proposals(20), IMAGES)
    exact = cut(OrderedDict((name, fmap.float()) for name, fmap in maps.items()), proposals(20), IMAGES)
    assert result.dtype == torch.bfloat16 and torch.equal(result, exact.bfloat16())
    result.float().sum().backward()
    assert all(fmap.grad is not None and fmap.grad.dtype == torch.bfloat16 for fmap in maps.values())


def test_images_much_smaller_than_their_padding_are_cut_at_the_right_scale() -> None:
    """torchvision takes the scale from the first batch: 24 cells of an image of 40 pixels would be a stride of 2."""
    columns = torch.arange(32.0).expand(1, 1, 24, 32)
    maps = OrderedDict(zip(NAMES, (columns, columns[..., ::2, ::2], columns[..., ::4, ::4]), strict=True))
    cut = PyramidRoIAlign(NAMES, STRIDES, 2, samples=2, usual_side=224, usual_level=4)
    result = cut(maps, [torch.tensor([[16.0, 16, 32, 32]])], [(40, 40)])
    assert result.mean().item() == pytest.approx(6)  # columns 4 to 8 of a stride of 4
