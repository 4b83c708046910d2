"""A two-stage detector: features → proposals → boxes, and masks if it has a mask head."""

from collections import OrderedDict
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.models.detection._utils import BoxCoder
from torchvision.models.detection.roi_heads import RoIHeads
from torchvision.models.detection.rpn import RegionProposalNetwork
from torchvision.models.detection.transform import GeneralizedRCNNTransform

from csml.pixels import Normalization, resized

Detection = dict[str, Tensor]
"""boxes float32 `(D, 4)`, labels int64 `(D,)` from 1, scores `(D,)`, best first; masks `(D, 1, H, W)` in [0, 1]."""

_STRIDE = 32
"""The sides of a batch are padded to multiples of this, the stride of the last stage."""


class Truth:
    """Targets of a batch, wrapped so that mixed precision does not convert them: boxes in bf16 are off by pixels."""

    def __init__(self, targets: list[dict[str, Tensor]]) -> None:
        self.targets = targets


class _Normalise(GeneralizedRCNNTransform):
    """Normalises images, pads them to a batch and rescales detections; it does not resize images."""

    def __init__(self, by: Normalization) -> None:
        super().__init__(1, 1, list(by.mean), list(by.std), _STRIDE)

    def resize(self, image: Tensor, target: Any = None) -> tuple[Tensor, Any]:
        return image, target


class _ExactBoxCoder(BoxCoder):
    """Keeps boxes in float32, whatever the precision of the network."""

    def decode(self, rel_codes: Tensor, boxes: list[Tensor]) -> Tensor:
        return super().decode(rel_codes.float(), boxes)


class Detector(nn.Module):
    """torchvision's GeneralizedRCNN for images that the data loader has already resized.

    Args:
        backbone: images `(B, 3, H, W)` → maps by name, finest first.
        rpn: the region proposal network on these maps.
        roi_heads: classifies and refines each proposal.
        by: the normalisation that the backbone expects.
    """

    def __init__(self, backbone: nn.Module, rpn: RegionProposalNetwork, roi_heads: RoIHeads, by: Normalization) -> None:
        super().__init__()
        self.backbone, self.rpn, self.roi_heads = backbone, rpn, roi_heads
        self.transform = _Normalise(by)
        self.sides: tuple[int, int] | None = None
        """shorter and longest side to which `forward` resizes images in eval mode; None: not at all"""
        for module in (rpn, roi_heads):
            module.box_coder = _ExactBoxCoder(module.box_coder.weights)

    def forward(self, images: list[Tensor], truth: Truth | None = None) -> Any:
        """Losses by name in training mode, else one Detection per image, in pixels of that image.

        Args:
            images: `(3, h, w)` each: uint8, or float in [0, 1].
            truth: the targets; in training mode only.
        """
        if self.training:
            assert truth is not None
            detections, _, losses = self.run_network(images, truth.targets)
            return losses
        sizes = [(image.shape[1], image.shape[2]) for image in images]
        if self.sides is not None:
            wanted = [resized(size, *self.sides) for size in sizes]
            images = [
                F.interpolate(_unit(image)[None], size, mode="bilinear", antialias=True)[0]
                for image, size in zip(images, wanted, strict=True)
            ]
        detections, resized_sizes, _ = self.run_network(images)
        return [self.rescale(*each) for each in zip(detections, resized_sizes, sizes, strict=True)]

    def run_network(
        self, images: list[Tensor], targets: list[dict[str, Tensor]] | None = None
    ) -> tuple[list[Detection], list[tuple[int, int]], dict[str, Tensor]]:
        """Detections with masks that are not pasted yet, the image sizes they refer to, and losses in training mode."""
        batch, targets = self.transform([_unit(image) for image in images], targets)
        maps: OrderedDict[str, Tensor] = self.backbone(batch.tensors)
        proposals, proposal_losses = self.rpn(batch, maps, targets)
        detections, losses = self.roi_heads(maps, proposals, batch.image_sizes, targets)
        return detections, batch.image_sizes, {**proposal_losses, **losses}

    def rescale(self, detection: Detection, source: tuple[int, int], target: tuple[int, int]) -> Detection:
        """Rescale a detection from image size `source` to image size `target`, and paste its masks."""
        detection = {key: value.float() if value.is_floating_point() else value for key, value in detection.items()}
        (rescaled,) = self.transform.postprocess([detection], [source], [target])
        return rescaled


def _unit(image: Tensor) -> Tensor:
    return image if image.is_floating_point() else image.float() / 255
