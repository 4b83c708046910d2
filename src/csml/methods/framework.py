"""The base class of all frameworks: a query encoder, the result of a step, and the methods that subclasses override."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from csml.config import PretrainConfig
from csml.distributed.world import ALONE, World
from csml.methods.key_memory import KeyMemory
from csml.models.backbones import Backbone, build_backbone
from csml.models.encoder import Encoder
from csml.models.freezing import freeze_stages
from csml.views.recipe import Views

Embeddings = dict[int, Tensor]
"""`{stage: (B, D)}`; keys are L2-normalised."""


class StepResult(NamedTuple):
    loss: Tensor
    """`()`, to be minimised"""
    metrics: dict[str, Tensor]
    """name → `()`, detached, left on the device"""
    fresh: list[tuple[Embeddings, Tensor]]
    """new keys of all processes with the ids `(B,)` of their images, the anchors' first: for a queue or a memory"""


class Framework(nn.Module):
    """A query encoder and a loss over queries and keys; a subclass defines where the keys come from.

    Args:
        encoder: f_q, which is trained.
        world: the processes that share a batch.
    """

    chance: float
    """loss of one query by an untrained network"""
    progress: float = 0.0
    """completed share of the run, for schedules; set before every step"""

    def __init__(self, encoder: Encoder, world: World = ALONE) -> None:
        super().__init__()
        self.world = world
        self.stages = encoder.stages
        self.query_encoder = encoder  # f_q

    @classmethod
    def from_config(cls, config: PretrainConfig, images: int, world: World, device: torch.device) -> "Framework":
        """Build the framework with fresh weights, for a data set of `images` images, in the process of `world` that
        will train on `device`."""
        raise NotImplementedError

    @classmethod
    def warnings(cls, config: PretrainConfig, images: int) -> list[str]:
        """Settings that are allowed but unwise for a data set of `images` images."""
        return []

    def forward(self, views: Views, generator: torch.Generator) -> StepResult:
        """The loss of all query views at all levels, not yet differentiated."""
        raise NotImplementedError

    def after_backward(self, result: StepResult) -> None:
        """Updates that must wait until after backward."""

    def remember(self, features: Tensor, ids: Tensor) -> None:
        """Store the keys of images `ids` `(n,)`, computed from their pooled features `(n, F)`; for a framework whose
        settings have `remembers`."""
        raise NotImplementedError

    @property
    def memory(self) -> KeyMemory | None:
        """The newest key of every image, if the framework uses one."""
        return None

    def recent_keys(self) -> Embeddings:
        """Keys of the last steps, for statistics."""
        raise NotImplementedError

    def encoder(self, role: str) -> Encoder:
        """The encoder in the role `query` or `key`; the query encoder if one network has both."""
        return self.query_encoder

    def start_from(self, backbone: Backbone) -> None:
        """Copy the weights of a backbone of the same architecture into every encoder."""
        for encoder in self.encoders():
            encoder.backbone.load_state_dict(backbone.state_dict())

    def encoders(self) -> list[Encoder]:
        """Every network that a step runs."""
        return [self.query_encoder]


def build_encoder(config: PretrainConfig, norm: bool) -> Encoder:
    """A fresh backbone with a head per level, with or without BatchNorm in the heads' MLPs."""
    model = config.model
    backbone = build_backbone(model.backbone, model.small_images, config.images.channels)
    freeze_stages(backbone, model.frozen_stages)
    return Encoder(
        backbone,
        model.stages,
        model.dim,
        model.hidden,
        model.narrowing,
        norm=norm,
        projection=model.projection,
        fixed_batchnorm=model.fixed_batchnorm,
    )


def repeated(values: Tensor, views: int, dim: int) -> Tensor:
    """Repeat the values of B anchors for V views of each, row b·V + v: B → B·V along `dim`."""
    return values if views == 1 else values.repeat_interleave(views, dim=dim)


def total(terms: dict[tuple[str, int], Tensor], groups: dict[str, int], reduction: str) -> Tensor:
    """The loss from the terms `{(query, stage): ()}`: the sum over levels, and the mean or sum over query groups."""
    loss = torch.stack([groups[query] * term for (query, _), term in terms.items()]).sum()
    return loss / sum(groups.values()) if reduction == "mean" else loss
