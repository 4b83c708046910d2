"""Builds a detector from its settings, with torchvision's modules."""

from functools import partial

from torch import nn
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor
from torchvision.models.detection.roi_heads import RoIHeads
from torchvision.models.detection.rpn import RegionProposalNetwork, RPNHead
from torchvision.models.resnet import ResNet

from csml.config import DetectorConfig
from csml.errors import CsmlError
from csml.models.backbones import Backbone, normalization, stage_channels, stage_strides
from csml.models.detectors.c4 import C4Backbone, C4Head, C4Pool
from csml.models.detectors.detector import Detector
from csml.models.detectors.fpn import LEVELS, PyramidBackbone, pyramid_strides
from csml.models.detectors.roi_align import PyramidRoIAlign

_BOX_SIDE, _MASK_SIDE = 7, 14
"""Side in cells of the RoIAlign output for each proposal."""
_MASK_LAYERS = 4
_RPN = {"fg_iou_thresh": 0.7, "bg_iou_thresh": 0.3, "batch_size_per_image": 256, "positive_fraction": 0.5}
_ROI = {"fg_iou_thresh": 0.5, "bg_iou_thresh": 0.5, "positive_fraction": 0.25, "bbox_reg_weights": None}


def build_detector(net: Backbone, config: DetectorConfig, classes: int, masks: bool) -> Detector:
    """Build a detector around the backbone `net`; all other modules are randomly initialised.

    Args:
        net: the backbone; its modules become part of the detector.
        config: kind and sizes.
        classes: number of classes, without the background.
        masks: whether to predict masks too; fpn only.
    """
    if config.kind == "c4":
        return _c4(net, config, classes)
    return _fpn(net, config, classes, masks)


def _c4(net: Backbone, config: DetectorConfig, classes: int) -> Detector:
    if not isinstance(net, ResNet):
        raise CsmlError("detector.kind: c4 needs a ResNet of torchvision or csml; choose fpn for other networks")
    channels, strides = stage_channels(net), stage_strides(net)
    anchors = AnchorGenerator((config.anchors,), (config.ratios,))
    rpn = _proposals(anchors, channels[3], config, before=(6, 6))
    head = C4Head(net, channels[4])
    heads = _roi_heads(C4Pool(strides[3], config.roi_side), head, channels[4], config, classes)
    return Detector(C4Backbone(net), rpn, heads, normalization(net))


def _fpn(net: Backbone, config: DetectorConfig, classes: int, masks: bool) -> Detector:
    width = config.channels
    backbone = PyramidBackbone(net, width)
    anchors = AnchorGenerator(tuple((side,) for side in config.anchors), (config.ratios,) * len(config.anchors))
    rpn = _proposals(anchors, width, config, before=(1, 1))
    head = TwoMLPHead(width * _BOX_SIDE**2, config.head_width)
    # The size of a box decides its pyramid level: 224 pixels on the third level if the smallest anchor is 32.
    strides = pyramid_strides(net)
    third = strides[0].bit_length() - 1 + 2
    cut = partial(
        PyramidRoIAlign, list(LEVELS), strides, samples=2, usual_side=7 * config.anchors[0], usual_level=third
    )
    more = {}
    if masks:
        more = {
            "mask_roi_pool": cut(side=_MASK_SIDE),
            "mask_head": MaskRCNNHeads(width, (width,) * _MASK_LAYERS, 1),
            "mask_predictor": MaskRCNNPredictor(width, width, classes + 1),
        }
    heads = _roi_heads(cut(side=_BOX_SIDE), head, config.head_width, config, classes, **more)
    return Detector(backbone, rpn, heads, normalization(net))


def _proposals(
    anchors: AnchorGenerator, channels: int, config: DetectorConfig, before: tuple[int, int]
) -> RegionProposalNetwork:
    """The proposal network. `before`: ratio of boxes before to boxes after non-maximum suppression, in training and
    tests."""
    train, test = config.proposals, config.proposals // 2
    return RegionProposalNetwork(
        anchors,
        RPNHead(channels, anchors.num_anchors_per_location()[0]),
        **_RPN,
        pre_nms_top_n={"training": before[0] * train, "testing": before[1] * test},
        post_nms_top_n={"training": train, "testing": test},
        nms_thresh=0.7,
    )


def _roi_heads(
    pool: nn.Module, head: nn.Module, width: int, config: DetectorConfig, classes: int, **masks: nn.Module
) -> RoIHeads:
    return RoIHeads(
        pool,
        head,
        FastRCNNPredictor(width, classes + 1),
        **_ROI,
        batch_size_per_image=config.rois,
        score_thresh=config.min_score,
        nms_thresh=config.nms,
        detections_per_img=config.max_detections,
        **masks,
    )
