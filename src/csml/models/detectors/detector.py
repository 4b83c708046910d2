"""A two-stage detector: features → proposals → boxes, and masks if it has a head for them."""

from collections import OrderedDict
from typing import Any

from torch import Tensor, nn
from torchvision.models.detection.roi_heads import RoIHeads
from torchvision.models.detection.rpn import RegionProposalNetwork
from torchvision.models.detection.transform import GeneralizedRCNNTransform

from csml.views.augment import MEAN, STD

Detection = dict[str, Tensor]
"""boxes float32 `(D, 4)`, labels int64 `(D,)` from 1, scores `(D,)`, best first; masks `(D, 1, H, W)` in [0, 1]."""

_STRIDE = 32
"""Sides of a batch are padded to multiples of it, the coarsest stage's."""


class _Normalise(GeneralizedRCNNTransform):
    """Images are normalised and padded to a batch, detections are scaled; nothing is resized here."""

    def __init__(self) -> None:
        super().__init__(1, 1, list(MEAN), list(STD), _STRIDE)

    def resize(self, image: Tensor, target: Any = None) -> tuple[Tensor, Any]:
        return image, target


class Detector(nn.Module):
    """torchvision's GeneralizedRCNN for images that were resized by whoever read them.

    Args:
        backbone: images `(B, 3, H, W)` → maps by name, finest first.
        rpn: proposes boxes on the maps.
        roi_heads: looks at each proposal.
    """

    def __init__(self, backbone: nn.Module, rpn: RegionProposalNetwork, roi_heads: RoIHeads) -> None:
        super().__init__()
        self.backbone, self.rpn, self.roi_heads = backbone, rpn, roi_heads
        self.transform = _Normalise()

    def forward(
        self,
        images: list[Tensor],
        targets: list[dict[str, Tensor]] | None = None,
        sizes: list[tuple[int, int]] | None = None,
    ) -> Any:
        """Losses by name in training, else one Detection per image.

        Args:
            images: `(3, h, w)` each, in [0, 1].
            targets: the truth, in training.
            sizes: height and width that detections are scaled to; by default those of the images.
        """
        batch, targets = self.transform(images, targets)
        maps: OrderedDict[str, Tensor] = self.backbone(batch.tensors)
        proposals, proposal_losses = self.rpn(batch, maps, targets)
        detections, losses = self.roi_heads(maps, proposals, batch.image_sizes, targets)
        if self.training:
            return {**proposal_losses, **losses}
        return self.transform.postprocess(detections, batch.image_sizes, sizes or batch.image_sizes)
