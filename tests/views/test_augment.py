"""Batched colour operations against torchvision's functional ones at the same parameters."""

from dataclasses import replace

import pytest
import torch
import torchvision.transforms.v2.functional as TF
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torchvision.transforms import ColorJitter

from csml.config import AugmentationConfig
from csml.pixels import MEAN, STD
from csml.views.augment import ORDER_GROUP, AugmentParams, augment, draw_params, gaussian_blur, shift_hue_

LEVEL = 1 / 255


def crops(count: int, size: int = 16) -> Tensor:
    generator = torch.Generator().manual_seed(count)
    return torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=generator)


def one_by_one(crop: Tensor, params: AugmentParams, row: int, radius: int) -> Tensor:
    """The same augmentation with torchvision, one picture at a time."""
    x = crop.float() / 255
    for operation in params.order[row].tolist():
        if operation == 0:
            x = TF.adjust_brightness(x, params.brightness[row].item())
        elif operation == 1:
            x = TF.adjust_contrast(x, params.contrast[row].item())
        elif operation == 2:
            x = TF.adjust_saturation(x, params.saturation[row].item())
        else:
            x = TF.adjust_hue(x, params.hue[row].item())
    if params.gray[row]:
        x = TF.rgb_to_grayscale(x, num_output_channels=3)
    if params.sigma[row] > 0:
        sigma = params.sigma[row].item()
        x = TF.gaussian_blur(x, [2 * radius + 1] * 2, [sigma, sigma])
    if params.solarize[row]:
        x = TF.solarize(x, 0.5)
    if params.flip[row]:
        x = TF.horizontal_flip(x)
    return TF.normalize(x, list(MEAN), list(STD))


@given(seed=st.integers(0, 1000), batch=st.sampled_from([1, 5, ORDER_GROUP + 3]))
def test_the_whole_augmentation_equals_torchvision(seed: int, batch: int) -> None:
    config = AugmentationConfig(gray=0.3, solarize=0.3, hue=0.5)
    params = draw_params(batch, config, torch.Generator().manual_seed(seed))
    # A pixel at the very threshold of solarising may fall to either side; checked separately below.
    params = replace(params, solarize=torch.zeros(batch, dtype=torch.bool))
    pictures = crops(batch)
    ours = augment(pictures, params, max_sigma=2.0)
    theirs = torch.stack([one_by_one(picture, params, row, radius=6) for row, picture in enumerate(pictures)])
    difference = (ours - theirs) * torch.tensor(STD)[:, None, None]
    assert difference.abs().max() <= LEVEL


def test_solarize_equals_torchvision() -> None:
    neutral = draw_params(4, AugmentationConfig(flip=0, jitter=0, gray=0, blur=0), torch.Generator().manual_seed(0))
    params = replace(neutral, solarize=torch.ones(4, dtype=torch.bool))
    pictures = crops(4)
    ours = augment(pictures, params, 2.0)
    theirs = torch.stack([TF.normalize(TF.solarize(p.float() / 255, 0.5), list(MEAN), list(STD)) for p in pictures])
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("shift", [-0.5, -0.13, 0.0, 0.3])
def test_hue_equals_torchvision(shift: float) -> None:
    x = crops(3).float() / 255
    expected = TF.adjust_hue(x, shift)
    shift_hue_(x, torch.full((3, 1, 1, 1), shift))
    torch.testing.assert_close(x, expected, atol=1e-5, rtol=0)


@given(size=st.integers(2, 40), sigma=st.floats(0.1, 5.0))
def test_blur_equals_torchvision_up_to_the_border(size: int, sigma: float) -> None:
    x = crops(1, size).float() / 255
    radius = min(6, size - 1)
    ours = gaussian_blur(x, torch.tensor([sigma]), radius=6)
    theirs = TF.gaussian_blur(x, [2 * radius + 1] * 2, [sigma, sigma])
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


def test_parameters_are_distributed_as_asked() -> None:
    config = AugmentationConfig(solarize=0.2)
    params = draw_params(20_000, config, torch.Generator().manual_seed(0))
    for drawn, probability in ((params.gray, 0.2), (params.flip, 0.5), (params.solarize, 0.2), (params.sigma > 0, 0.5)):
        assert drawn.float().mean() == pytest.approx(probability, abs=0.015)
    jittered = params.brightness != 1
    assert jittered.float().mean() == pytest.approx(0.8, abs=0.015)
    for factor in (params.brightness, params.contrast, params.saturation):
        assert ((factor != 1) == jittered).all()  # one coin for all four
        used = factor[jittered]
        assert used.min() >= 0.6
        assert used.max() <= 1.4
        assert used.mean() == pytest.approx(1.0, abs=0.01)
        assert used.std() == pytest.approx(0.8 / 12**0.5, abs=0.01)
    assert params.hue.abs().max() <= 0.1
    sigma = params.sigma[params.sigma > 0]
    assert sigma.mean() == pytest.approx(1.05, abs=0.02)
    assert params.order.sort(1).values.eq(torch.arange(4)).all()


def test_every_order_of_the_jitter_occurs_as_in_torchvision() -> None:
    orders = draw_params(ORDER_GROUP * 2400, AugmentationConfig(), torch.Generator().manual_seed(0)).order[
        ::ORDER_GROUP
    ]
    ours = torch.unique(orders, dim=0, return_counts=True)[1]
    torch.manual_seed(0)
    jitter = ColorJitter(0.4, 0.4, 0.4, 0.1)
    get = [tuple(ColorJitter.get_params(jitter.brightness, None, None, None)[0].tolist()) for _ in range(2400)]
    assert len(ours) == len(set(get)) == 24
    assert ours.min() > 60
    assert ours.max() < 140
