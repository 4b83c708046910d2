"""A backbone with one head per level: the paper's f and g^l (docs/method.md#levels)."""

from typing import Any

from torch import Tensor, nn

from csml.config import STAGES
from csml.models.backbones import Backbone, block_narrowing, feature_channels, stage_channels, stage_outputs
from csml.models.heads import CompanionHead, FeatureHead, LastStageHead
from csml.models.merged_batchnorm import fix_and_merge_batchnorm


class Encoder(nn.Module):
    """Images `(B, 3, H, W)` → `{stage: (B, D)}`, the L2-normalised embeddings of all levels.

    Args:
        backbone: a network of `build_backbone`.
        stages: the levels with a loss; 4 has a projection head, earlier ones have a companion head.
        dim: D.
        hidden: width of the MLPs; None means the stage's number of channels.
        narrowing: bottleneck factor of the companion heads; None means that of the backbone's own blocks.
        norm: whether the MLPs have BatchNorm.
        projection: whether the last stage has a projection head; otherwise its embedding is the feature itself.
        fixed_batchnorm: whether the backbone's BatchNorm keeps its running statistics and uses them in training too.
    """

    def __init__(
        self,
        backbone: Backbone,
        stages: tuple[int, ...],
        dim: int,
        hidden: int | None,
        narrowing: int | None = None,
        norm: bool = False,
        projection: bool = True,
        fixed_batchnorm: bool = False,
    ) -> None:
        super().__init__()
        channels, last = stage_channels(backbone), STAGES[-1]
        channels[last] = feature_channels(backbone)[last]
        narrowing = narrowing or block_narrowing(backbone)
        if fixed_batchnorm:
            fix_and_merge_batchnorm(backbone)
        self.backbone = backbone
        self.stages = tuple(sorted(stages))
        self.hidden = {stage: hidden or channels[stage] for stage in self.stages}
        self.dims = dict.fromkeys(self.stages, dim)
        """dimensions of the embedding of each level"""
        self.heads = nn.ModuleDict()
        for stage, width in self.hidden.items():
            if stage == last and not projection:
                self.heads[str(stage)], self.dims[stage] = FeatureHead(channels[stage]), channels[stage]
            elif stage == last:
                self.heads[str(stage)] = LastStageHead(channels[stage], width, dim, norm)
            else:
                self.heads[str(stage)] = CompanionHead(channels[stage], width, dim, norm, narrowing)

    def forward(self, images: Tensor) -> dict[int, Tensor]:
        maps, feature = stage_outputs(self.backbone, images)
        levels = {**maps, STAGES[-1]: feature}
        return {stage: self.heads[str(stage)](levels[stage]) for stage in self.stages}

    def __call__(self, *args: Any, **kwargs: Any) -> dict[int, Tensor]:
        return super().__call__(*args, **kwargs)
