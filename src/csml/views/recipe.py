"""The views of an anchor, and the weight with which each query is pulled to each key.

MoCo v2:      query a → key a.
CsMl:         queries a, p → keys a, p (½, ½);  query mixed = mix(a, p) → keys a, p (λ, 1 − λ).
P positives:  queries a, p, p2, … → keys a, p, p2, … (1 / (P + 1) each);  mixed as above.
Multi-crop:   query small, V small crops of each side → the same keys with equal weights; counts once per side.
Symmetric:    each view of a, p, … is a query once and a key once; small crops are pulled to the keys of both
              directions.

See docs/method.md#loss for the weights and docs/method.md#multi-crop for the small crops.
"""

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from csml.config import AugmentationConfig, PretrainConfig, ViewsConfig
from csml.distributed.world import Part, whole
from csml.pixels import CropSpec, Normalization
from csml.views.augment import augment, draw_params
from csml.views.mixing import cutmix, mixup

_SCALE, _SCALE_BESIDE_SMALL = (0.2, 1.0), (0.14, 1.0)
SWAPPED = "_swapped"
"""Suffix of the names of queries and keys whose roles are swapped (the symmetric direction)."""


class Views(NamedTuple):
    """A batch as a framework receives it: B anchors, Q queries, P keys.

    This is the only contract between views and frameworks: a framework does not know how the views were made.
    """

    queries: dict[str, Tensor]
    """Q × `(B·V, 3, S, S)`, encoded with gradient. V is the number of views per anchor (1 except for small crops),
    row b·V + v. Each query is one forward, normalised by its own batch; the sub-batches of split BatchNorm hold the
    same anchors in all of them."""
    groups: dict[str, int]
    """for each query, its weight in the loss, counted in query groups: the number of sides for small crops, else 1"""
    keys: dict[str, Tensor]
    """P × `(B, 3, S, S)`, encoded without gradient"""
    weights: dict[str, Tensor]
    """for each query, `(P,)` or `(P, B)`: the weight of each key as its positive, in the order of `keys`; sums to 1"""
    key_ids: dict[str, Tensor]
    """P × `(B,)`: the id of the image that each key shows"""
    known: Tensor
    """`(B, R)`: ids of the known positives of each anchor: its own id, then its neighbour set Ω"""
    part: Part | None = None
    """which rows of a batch the anchors are; None for a whole batch"""


def sides(views: ViewsConfig) -> tuple[str, ...]:
    """The names of an anchor's images: a for the anchor, then p, p2, p3, … for its neighbours."""
    neighbors = ("p", *(f"p{i}" for i in range(2, views.positives + 1)))
    return ("a", *neighbors) if views.cross_sample and views.neighbor_views else ("a",)


def query_sides(views: ViewsConfig) -> tuple[str, ...]:
    """The sides whose query views are needed: as queries, as a part of the mixture, or as swapped keys."""
    names = sides(views)
    if views.neighbor_queries or views.symmetric:
        return names
    return names[:1] if views.mix == "none" else names[:2]


def crop_specs(config: PretrainConfig) -> list[CropSpec]:
    """The crops that `make_views` expects, in its order."""
    views, ratio, size = config.views, config.augmentation.crop_ratio, config.images.size
    scale = config.augmentation.crop_scale or (_SCALE_BESIDE_SMALL if views.small_crops else _SCALE)
    small = views.small_size or max(8, 8 * round(size * 3 / 7 / 8))
    specs = [
        CropSpec(f"{role}_{side}", image, size, scale, ratio)
        for role, wanted in (("query", query_sides(views)), ("key", sides(views)))
        for image, side in enumerate(sides(views))
        if side in wanted
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
    by: Normalization | None = None,
) -> Views:
    """Augment every crop with its own random draw, mix, and set the weight of every key for every query.

    Args:
        crops: uint8 `(B, 3, S, S)` for each of `crop_specs`, on the training device.
        anchor_ids: `(B,)`.
        neighbor_ids: `(P, B)`; equal to `anchor_ids` where x_p = x_a.
        omega: `(B, k)`, the neighbour set Ω of each anchor; k = 0 before the first search.
        views, augmentation: the settings.
        generator: CPU generator of this step.
        memory_format: of the returned images.
        part: which rows of a batch these are, if several processes share it.
        by: the normalisation that the network expects; by default that of a ResNet.
    """
    part = part or whole(len(anchor_ids))

    def augmented(crop: Tensor, settings: AugmentationConfig, each: int = 1) -> Tensor:
        params = draw_params(len(crop), settings, generator, whole(each * part.total)._replace(start=each * part.start))
        return augment(crop, params, settings.blur_sigma[1], by).contiguous(memory_format=memory_format)

    names = sides(views)
    query_views = {side: augmented(crops[f"query_{side}"], augmentation) for side in query_sides(views)}
    key_views = {side: augmented(crops[f"key_{side}"], _key_augmentation(augmentation)) for side in names}
    queries, weights = _queries(query_views, views, generator, part)
    keys, key_ids = dict(key_views), dict(zip(names, [anchor_ids, *neighbor_ids], strict=False))
    if views.symmetric:
        swapped, swapped_weights = _queries(key_views, views, generator, part)
        queries |= {name + SWAPPED: images for name, images in swapped.items()}
        keys |= {side + SWAPPED: images for side, images in query_views.items()}
        key_ids |= {side + SWAPPED: ids for side, ids in key_ids.items()}
        # A query is pulled only to the keys of its own direction.
        weights = {name: torch.cat([own, torch.zeros_like(own)]) for name, own in weights.items()}
        weights |= {name + SWAPPED: torch.cat([torch.zeros_like(own), own]) for name, own in swapped_weights.items()}
    groups = dict.fromkeys(queries, 1)
    if views.small_crops:
        small = [crops[f"small_{side}_{v}"] for side in names for v in range(views.small_crops)]
        stacked = torch.stack(small, dim=1).flatten(0, 1)  # (B·V, 3, s, s)
        queries["small"] = augmented(stacked, augmentation, len(small))
        groups["small"], weights["small"] = len(names), torch.full((len(keys),), 1 / len(keys))
    known = torch.cat([anchor_ids[:, None], omega], dim=1)  # (B, 1 + k)
    return Views(queries, groups, keys, weights, key_ids, known, part)


def _key_augmentation(settings: AugmentationConfig) -> AugmentationConfig:
    """The augmentation of keys, which differs from that of queries in BYOL."""
    blur = settings.blur if settings.key_blur is None else settings.key_blur
    solarize = settings.solarize if settings.key_solarize is None else settings.key_solarize
    return replace(settings, blur=blur, solarize=solarize)


def _queries(
    images: dict[str, Tensor], views: ViewsConfig, generator: torch.Generator, part: Part
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The queries (one view per side, P sides, and the mixture of a and p) and their weights for the P keys."""
    keys = len(sides(views))
    queries = {side: view for side, view in images.items() if views.neighbor_queries or side == "a"}
    weights = {side: torch.full((keys,), 1 / keys) for side in queries}
    if views.mix != "none":
        mix = cutmix if views.mix == "cutmix" else mixup
        queries["mixed"], lam = mix(images["a"], images["p"], views.mix_alpha, generator, views.mix_per_sample, part)
        absent = [torch.zeros_like(lam)] * (keys - 2)  # p2, p3, … are not in the mixture
        weights["mixed"] = torch.stack([lam, 1 - lam, *absent])  # (P,) or (P, B)
    return queries, weights
