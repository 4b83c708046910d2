"""The views of some anchors as pictures: queries, keys, mixtures with their λ, small crops."""

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from csml.config import PretrainConfig
from csml.data.bit_depth import false_colour
from csml.data.images import Images
from csml.data.loading import view_batches
from csml.data.sampling import generator_for, plan_batch
from csml.pixels import normalization_of
from csml.views.recipe import SWAPPED, crop_specs, make_views


def draw_views(
    config: PretrainConfig, images: Images, omega: np.ndarray | None, anchors: np.ndarray
) -> list[list[tuple[str, Image.Image]]]:
    """The views of each anchor with their names. Each anchor is a separate batch, with its own λ.

    Args:
        config: settings of the run.
        images: its training images.
        omega: neighbour set Ω `(N, k)`, or None before the first search.
        anchors: `(R,)` ids.
    """
    return [_views_of_one(config, images, omega, anchor) for anchor in anchors.tolist()]


def _views_of_one(
    config: PretrainConfig, images: Images, omega: np.ndarray | None, anchor: int
) -> list[tuple[str, Image.Image]]:
    specs, key = crop_specs(config), (config.seed, anchor)
    plan = plan_batch(np.array([anchor]), omega, len(specs), generator_for(*key, 7), config.views.positives)
    (batch,) = view_batches(images, [plan], specs, workers=0)
    if not batch.size:  # the image cannot be read
        return []
    views = make_views(
        batch.crops, batch.anchors, batch.neighbors, torch.zeros(batch.size, 0, dtype=torch.long),
        config.views, config.augmentation, generator_for(*key, 8), torch.contiguous_format,
    )  # fmt: skip
    drawn = []
    for role, group in (("query", views.queries), ("key", views.keys)):
        for name, pictures in group.items():
            for number, picture in enumerate(pictures):
                title = f"{name} {number + 1}" if len(pictures) > 1 else f"{role} {name}"
                if name.startswith("mixed"):
                    own_key = list(views.keys).index("a" + SWAPPED if name.endswith(SWAPPED) else "a")
                    title = f"{name}, λ = {float(views.weights[name][own_key].flatten()[0]):.2f}"
                drawn.append((title, _picture(picture)))
    return drawn


def _picture(view: Tensor) -> Image.Image:
    """A normalised view `(C, S, S)` as a picture."""
    mean, std = (torch.tensor(values)[:, None, None] for values in normalization_of(len(view)))
    pixels = view * std + mean
    return false_colour((pixels.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy())
