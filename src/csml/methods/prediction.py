"""Frameworks without negatives: a predictor per level predicts the key from the query (BYOL, SimSiam)."""

from torch import Tensor, nn

from csml.losses import predictive
from csml.methods.framework import Embeddings, repeated, total
from csml.methods.queue import KeyQueue
from csml.models.heads import mlp
from csml.views.recipe import Views

ORTHOGONAL = 2.0
"""2 − 2 · cos of orthogonal vectors: the loss of an untrained network."""
_RECENT = 1024


class Predictors(nn.ModuleDict):
    """One MLP with BatchNorm per level; `dims` and `hidden` give the dimensions and the width of each.

    A predictor sees the L2-normalised embedding; its BatchNorm restores a scale.
    """

    def __init__(self, dims: dict[int, int], hidden: dict[int, int]) -> None:
        super().__init__({str(stage): mlp(dim, hidden[stage], dim, norm=True) for stage, dim in dims.items()})

    def forward(self, embeddings: Embeddings) -> Embeddings:
        """`{stage: (B, D)}` → predictions of any length, `{stage: (B, D)}`."""
        return {stage: self[str(stage)](embedding) for stage, embedding in embeddings.items()}


class RecentKeys(KeyQueue):
    """The anchors' keys of the last steps. They are not negatives, but reveal a collapse, which the loss does not."""

    def __init__(self, dims: dict[int, int]) -> None:
        super().__init__(dims, _RECENT)
        self.stages = tuple(dims)

    def filled(self) -> Embeddings:
        """The keys, without empty slots."""
        filled = ~self.is_empty()  # (N,)
        return {stage: self.keys(stage)[filled] for stage in self.stages}


def prediction_loss(
    views: Views, predictions: dict[str, Embeddings], positives: Embeddings, reduction: str
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of all query views at all levels, 2 − 2 · cos(prediction, key), and its metrics.

    Args:
        views: the batch.
        predictions: per query view, `{stage: (B·V, D)}`.
        positives: keys of P views, `{stage: (P, B, D)}`, without gradient.
        reduction: mean or sum over the query groups.
    """
    terms: dict[tuple[str, int], Tensor] = {}
    metrics: dict[str, Tensor] = {}
    for name, by_stage in predictions.items():
        for s, prediction in by_stage.items():
            positive = repeated(positives[s], len(prediction) // len(views.known), dim=1)  # (P, B·V, D)
            weights = views.weights[name].to(positive.device, non_blocking=True)  # (P,) or (P, B)
            result = predictive(prediction, positive, weights)
            terms[name, s] = result.loss.mean()
            metrics[f"loss/stage{s}/{name}"] = terms[name, s].detach()
            if name == "a":
                metrics[f"positive/stage{s}"] = result.positive[0].mean()
    loss = total(terms, views.groups, reduction)
    return loss, {"loss": loss.detach(), **metrics}
