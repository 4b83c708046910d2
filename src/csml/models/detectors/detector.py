"""A two-stage detector: features → proposals → boxes, and masks if it has a head for them."""

from collections import OrderedDict
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.models.detection._utils import BoxCoder
from torchvision.models.detection.roi_heads import RoIHeads
from torchvision.models.detection.rpn import RegionProposalNetwork
from torchvision.models.detection.transform import GeneralizedRCNNTransform

from csml.views.augment import MEAN, STD
from csml.views.crop import resized

Detection = dict[str, Tensor]
"""boxes float32 `(D, 4)`, labels int64 `(D,)` from 1, scores `(D,)`, best first; masks `(D, 1, H, W)` in [0, 1]."""

_STRIDE = 32
"""Sides of a batch are padded to multiples of it, the coarsest stage's."""


class Truth:
    """Targets of a batch, wrapped so that mixed precision passes them by: boxes in bf16 would be pixels off."""

    def __init__(self, targets: list[dict[str, Tensor]]) -> None:
        self.targets = targets


class _Normalise(GeneralizedRCNNTransform):
    """Images are normalised and padded to a batch, detections are scaled; nothing is resized here."""

    def __init__(self) -> None:
        super().__init__(1, 1, list(MEAN), list(STD), _STRIDE)

    def resize(self, image: Tensor, target: Any = None) -> tuple[Tensor, Any]:
        return image, target


class _ExactBoxCoder(BoxCoder):
    """Boxes stay in float32 whatever the precision of the network that moves them."""

    def decode(self, rel_codes: Tensor, boxes: list[Tensor]) -> Tensor:
        return super().decode(rel_codes.float(), boxes)


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
        self.sides: tuple[int, int] | None = None
        """shorter and longest side that a picture is brought to when the detector is used; None: as it is"""
        for part in (rpn, roi_heads):
            part.box_coder = _ExactBoxCoder(part.box_coder.weights)

    def forward(self, images: list[Tensor], truth: Truth | None = None) -> Any:
        """Losses by name in training, else one Detection per image, in its own pixels.

        Args:
            images: `(3, h, w)` each: uint8, or float in [0, 1].
            truth: what is on them, in training.
        """
        if self.training:
            assert truth is not None
            detections, _, losses = self.look(images, truth.targets)
            return losses
        sizes = [(image.shape[1], image.shape[2]) for image in images]
        if self.sides is not None:
            wanted = [resized(size, *self.sides) for size in sizes]
            images = [
                F.interpolate(_unit(image)[None], size, mode="bilinear", antialias=True)[0]
                for image, size in zip(images, wanted, strict=True)
            ]
        detections, seen, _ = self.look(images)
        return [self.placed(*each) for each in zip(detections, seen, sizes, strict=True)]

    def look(
        self, images: list[Tensor], targets: list[dict[str, Tensor]] | None = None
    ) -> tuple[list[Detection], list[tuple[int, int]], dict[str, Tensor]]:
        """Detections whose masks are not yet pasted, the sizes they belong to, and losses in training."""
        batch, targets = self.transform([_unit(image) for image in images], targets)
        maps: OrderedDict[str, Tensor] = self.backbone(batch.tensors)
        proposals, proposal_losses = self.rpn(batch, maps, targets)
        detections, losses = self.roi_heads(maps, proposals, batch.image_sizes, targets)
        return detections, batch.image_sizes, {**proposal_losses, **losses}

    def placed(self, detection: Detection, seen: tuple[int, int], size: tuple[int, int]) -> Detection:
        """A detection on an image of size `seen` as one on an image of `size`."""
        detection = {key: value.float() if value.is_floating_point() else value for key, value in detection.items()}
        (moved,) = self.transform.postprocess([detection], [seen], [size])
        return moved


def _unit(image: Tensor) -> Tensor:
    return image if image.is_floating_point() else image.float() / 255
