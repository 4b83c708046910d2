"""Which views one anchor gets, and how strongly each query is pulled to each key (METHOD §2).

MoCo v2:  query a → key a.
CsMl:     queries a, p → keys a, p (½, ½);  query mixed = CutMix(a, p) → keys a, p (λ, 1 − λ).
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from csml.config.schema import AugmentationConfig, PretrainConfig, ViewsConfig
from csml.views.augment import augment, draw_params
from csml.views.cutmix import cutmix


@dataclass(frozen=True)
class CropSpec:
    """One random crop to be cut from every anchor or from its neighbour."""

    name: str
    image: Literal["anchor", "neighbor"]
    size: int
    scale: tuple[float, float]
    ratio: tuple[float, float]


class Views(NamedTuple):
    """The batch as a framework sees it: B anchors, Q query views, P key views."""

    queries: dict[str, Tensor]
    """Q × `(B, 3, S, S)`, encoded with gradient"""
    keys: dict[str, Tensor]
    """P × `(B, 3, S, S)`, encoded without"""
    weights: dict[str, Tensor]
    """per query, `(P,)` or `(P, B)`: how strongly it is pulled to each key, in the order of `keys`"""
    key_ids: dict[str, Tensor]
    """P × `(B,)`: the image each key shows"""
    known: Tensor
    """`(B, R)`: ids known to show what the anchor shows, itself first, then its Ω"""


def crop_specs(config: PretrainConfig) -> list[CropSpec]:
    """The crops that `make_views` needs, in its order."""
    sides: list[Literal["anchor", "neighbor"]] = ["anchor"]
    if config.views.cross_sample:
        sides.append("neighbor")
    scale, ratio = config.augmentation.crop_scale, config.augmentation.crop_ratio
    return [
        CropSpec(f"{role}_{side[0] if side == 'anchor' else 'p'}", side, config.images.size, scale, ratio)
        for role in ("query", "key")
        for side in sides
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
) -> Views:
    """Augment every crop with its own random draw, mix, and say who is pulled to whom.

    Args:
        crops: uint8 `(B, 3, S, S)` for each of `crop_specs`, on the training device.
        anchor_ids: `(B,)`.
        neighbor_ids: `(B,)`, equal to `anchor_ids` where x_p = x_a.
        omega: `(B, k)` neighbours of each anchor; k = 0 before the first search.
        views, augmentation: the config.
        generator: CPU generator of this step.
        memory_format: of the images, as the network wants them.
    """
    seen = {}
    for name, crop in crops.items():
        params = draw_params(len(crop), augmentation, generator)
        seen[name] = augment(crop, params, augmentation.blur_sigma[1]).contiguous(memory_format=memory_format)
    known = torch.cat([anchor_ids[:, None], omega], dim=1)  # (B, 1 + k)
    if not views.cross_sample:
        return Views(
            queries={"a": seen["query_a"]},
            keys={"a": seen["key_a"]},
            weights={"a": torch.ones(1)},
            key_ids={"a": anchor_ids},
            known=known,
        )
    queries = {"a": seen["query_a"], "p": seen["query_p"]}
    weights = {"a": torch.tensor([0.5, 0.5]), "p": torch.tensor([0.5, 0.5])}
    if views.mix == "cutmix":
        mixed, lam = cutmix(queries["a"], queries["p"], views.mix_alpha, generator, views.mix_per_sample)
        queries["mixed"] = mixed
        weights["mixed"] = torch.stack([lam, 1 - lam])  # (2,) or (2, B)
    return Views(
        queries=queries,
        keys={"a": seen["key_a"], "p": seen["key_p"]},
        weights=weights,
        key_ids={"a": anchor_ids, "p": neighbor_ids},
        known=known,
    )
