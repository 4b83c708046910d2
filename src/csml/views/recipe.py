"""Which views one anchor gets, and how strongly each query is pulled to each key (METHOD §2, §5).

MoCo v2:      query a → key a.
CsMl:         queries a, p → keys a, p (½, ½);  query mixed = mix(a, p) → keys a, p (λ, 1 − λ).
P positives:  queries a, p, p2, … → keys a, p, p2, … (1 / (P + 1) each);  mixed as above.
Multi-crop:   query small, V small crops of every side → the same keys in equal parts; counts once for each side.
Symmetric:    every view of a, p, … is a query once and a key once; small crops are pulled to both halves of the keys.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from csml.config.schema import AugmentationConfig, PretrainConfig, ViewsConfig
from csml.views.augment import augment, draw_params
from csml.views.mixing import cutmix, mixup
from csml.world import Part, whole

_SCALE, _SCALE_BESIDE_SMALL = (0.2, 1.0), (0.14, 1.0)
SWAPPED = "_swapped"
"""Ends the name of a query or key that took the other's place."""


@dataclass(frozen=True)
class CropSpec:
    """One random crop to be cut from every anchor or from one of its neighbours."""

    name: str
    image: int
    """0: the anchor; i: its i-th neighbour"""
    size: int
    scale: tuple[float, float]
    ratio: tuple[float, float]


class Views(NamedTuple):
    """The batch as a framework sees it: B anchors, Q query groups, P keys."""

    queries: dict[str, Tensor]
    """Q × `(B·V, 3, S, S)`, encoded with gradient: V views of each anchor (1, but for small crops), row b·V + v.
    Each is one forward, normalised by its own batch; sub-batches of split BatchNorm hold the same anchors in all."""
    groups: dict[str, int]
    """per query, how many of METHOD's query groups it stands for: 1, but small crops of several sides"""
    keys: dict[str, Tensor]
    """P × `(B, 3, S, S)`, encoded without"""
    weights: dict[str, Tensor]
    """per query, `(P,)` or `(P, B)`: how strongly it is pulled to each key, in the order of `keys`; sums to 1"""
    key_ids: dict[str, Tensor]
    """P × `(B,)`: the image each key shows"""
    known: Tensor
    """`(B, R)`: ids known to show what the anchor shows, itself first, then its Ω"""
    part: Part | None = None
    """which rows of a batch the anchors are, if not all"""


def sides(views: ViewsConfig) -> tuple[str, ...]:
    """The images of one anchor: a itself, then its neighbours p, p2, p3, …"""
    neighbors = ("p", *(f"p{i}" for i in range(2, views.positives + 1)))
    return ("a", *neighbors) if views.cross_sample else ("a",)


def crop_specs(config: PretrainConfig) -> list[CropSpec]:
    """The crops that `make_views` needs, in its order."""
    views, ratio, size = config.views, config.augmentation.crop_ratio, config.images.size
    scale = config.augmentation.crop_scale or (_SCALE_BESIDE_SMALL if views.small_crops else _SCALE)
    small = views.small_size or max(8, 8 * round(size * 3 / 7 / 8))
    specs = [
        CropSpec(f"{role}_{side}", image, size, scale, ratio)
        for role in ("query", "key")
        for image, side in enumerate(sides(views))
    ]
    return specs + [
        CropSpec(f"small_{side}_{v}", image, small, views.small_scale, ratio)
        for image, side in enumerate(sides(views))
        for v in range(views.small_crops)
    ]


def make_views(
    crops: dict[str, Tensor],
    anchor_ids: Tensor,
    neighbor_ids: Tensor,
    omega: Tensor,
    views: ViewsConfig,
    augmentation: AugmentationConfig,
    generator: torch.Generator,
    memory_format: torch.memory_format = torch.contiguous_format,
    part: Part | None = None,
) -> Views:
    """Augment every crop with its own random draw, mix, and say who is pulled to whom.

    Args:
        crops: uint8 `(B, 3, S, S)` for each of `crop_specs`, on the training device.
        anchor_ids: `(B,)`.
        neighbor_ids: `(P, B)`, equal to `anchor_ids` where x_p = x_a.
        omega: `(B, k)` neighbours of each anchor; k = 0 before the first search.
        views, augmentation: the config.
        generator: CPU generator of this step.
        memory_format: of the images, as the network wants them.
        part: which rows of a batch these are, if it is shared by several processes.
    """
    part = part or whole(len(anchor_ids))

    def seen(crop: Tensor, settings: AugmentationConfig, each: int = 1) -> Tensor:
        params = draw_params(len(crop), settings, generator, whole(each * part.total)._replace(start=each * part.start))
        return augment(crop, params, settings.blur_sigma[1]).contiguous(memory_format=memory_format)

    names = sides(views)
    asking = {side: seen(crops[f"query_{side}"], augmentation) for side in names}
    answering = {side: seen(crops[f"key_{side}"], _of_keys(augmentation)) for side in names}
    queries, weights = _queries(asking, views, generator, part)
    keys, key_ids = dict(answering), dict(zip(names, [anchor_ids, *neighbor_ids], strict=False))
    if views.symmetric:
        swapped, pulls = _queries(answering, views, generator, part)
        queries |= {name + SWAPPED: images for name, images in swapped.items()}
        keys |= {side + SWAPPED: images for side, images in asking.items()}
        key_ids |= {side + SWAPPED: ids for side, ids in key_ids.items()}
        # A direction has nothing to do with the keys of the other.
        weights = {name: torch.cat([pull, torch.zeros_like(pull)]) for name, pull in weights.items()}
        weights |= {name + SWAPPED: torch.cat([torch.zeros_like(pull), pull]) for name, pull in pulls.items()}
    groups = dict.fromkeys(queries, 1)
    if views.small_crops:
        small = [crops[f"small_{side}_{v}"] for side in names for v in range(views.small_crops)]
        queries["small"] = seen(torch.stack(small, dim=1).flatten(0, 1), augmentation, len(small))  # (B·V, 3, s, s)
        groups["small"], weights["small"] = len(names), torch.full((len(keys),), 1 / len(keys))
    known = torch.cat([anchor_ids[:, None], omega], dim=1)  # (B, 1 + k)
    return Views(queries, groups, keys, weights, key_ids, known, part)


def _of_keys(settings: AugmentationConfig) -> AugmentationConfig:
    """BYOL augments the two views of a pair differently."""
    blur = settings.blur if settings.key_blur is None else settings.key_blur
    solarize = settings.solarize if settings.key_solarize is None else settings.key_solarize
    return replace(settings, blur=blur, solarize=solarize)


def _queries(
    images: dict[str, Tensor], views: ViewsConfig, generator: torch.Generator, part: Part
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Views of every side, P of them, and their mixture; and how strongly each is pulled to the P keys."""
    queries = dict(images)
    weights = {side: torch.full((len(images),), 1 / len(images)) for side in images}
    if views.mix != "none":
        mix = cutmix if views.mix == "cutmix" else mixup
        queries["mixed"], lam = mix(images["a"], images["p"], views.mix_alpha, generator, views.mix_per_sample, part)
        absent = [torch.zeros_like(lam)] * (len(images) - 2)  # neighbours that are not in the mixture
        weights["mixed"] = torch.stack([lam, 1 - lam, *absent])  # (P,) or (P, B)
    return queries, weights
