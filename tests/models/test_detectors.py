"""Detectors around every backbone: all of its weights are in, it learns, and boxes lie where objects are."""

import pytest
import torch
from torch import nn
from torchvision.ops import box_iou

from csml.config import BACKBONES, DetectorConfig
from csml.errors import CsmlError
from csml.models.backbones import build_backbone, normalization, stage_strides
from csml.models.detectors import Detector, Truth, build_detector
from csml.models.detectors.c4 import C4Head, C4Pool
from csml.models.detectors.fpn import PyramidBackbone, pyramid_strides

SMALL = {"channels": 16, "head_width": 32, "proposals": 20, "rois": 8, "anchors": (16, 32, 48, 64, 96)}


def scene(masks: bool) -> tuple[list[torch.Tensor], list[dict[str, torch.Tensor]]]:
    """Two images of different sizes, one of them without objects."""
    generator = torch.Generator().manual_seed(0)
    images = [torch.rand(3, 64, 96, generator=generator), torch.rand(3, 80, 64, generator=generator)]
    full = {"boxes": torch.tensor([[8.0, 8, 40, 40], [50, 20, 90, 60]]), "labels": torch.tensor([1, 3])}
    empty = {"boxes": torch.zeros(0, 4), "labels": torch.zeros(0, dtype=torch.long)}
    if masks:
        full["masks"] = torch.zeros(2, 64, 96, dtype=torch.uint8)
        full["masks"][0, 8:40, 8:40] = full["masks"][1, 20:60, 50:90] = 1
        empty["masks"] = torch.zeros(0, 80, 64, dtype=torch.uint8)
    return images, [full, empty]


@pytest.mark.parametrize("kind", ["c4", "fpn"])
@pytest.mark.parametrize("name", BACKBONES)
def test_every_parameter_of_the_backbone_is_in_the_detector_once(name: str, kind: str) -> None:
    with torch.device("meta"):  # drawing 127 million weights takes a second
        net = build_backbone(name)
    net.to_empty(device="cpu")
    for number, tensor in enumerate(net.state_dict().values()):
        tensor.fill_(number)
    before = {key: (id(value), value.clone()) for key, value in net.named_parameters()}
    buffers = {key: value.clone() for key, value in net.named_buffers()}
    detector = build_detector(net, DetectorConfig(kind=kind, **SMALL), classes=3, masks=kind == "fpn")
    assert len({id(p) for p in detector.parameters()}) == len(list(detector.parameters()))
    found = detector.state_dict()
    for key, (_, value) in before.items():
        assert torch.equal(found[place(kind, key)], value)
    for key, value in buffers.items():  # trying the network out for its shapes must not move its statistics
        assert torch.equal(found[place(kind, key)], value)
    assert {id for id, _ in before.values()} <= {id(p) for p in detector.parameters()}


def place(kind: str, key: str) -> str:
    """Which module of the detector gets which weight."""
    if kind == "fpn":
        return f"backbone.net.{key}"
    return f"roi_heads.box_head.{key}" if key.startswith("layer4.") else f"backbone.{key}"


@pytest.mark.parametrize("kind", ["c4", "fpn"])
@pytest.mark.parametrize("name", ["tiny", "resnet18", "resnet50", "resnext50_32x4d"])
def test_a_step_reaches_every_parameter_and_a_test_gives_detections(name: str, kind: str) -> None:
    torch.manual_seed(0)
    masks = kind == "fpn"
    detector = build_detector(build_backbone(name), DetectorConfig(kind=kind, min_score=0.0, **SMALL), 3, masks)
    images, targets = scene(masks)
    losses = detector.train()(images, Truth(targets))
    assert set(losses) == {"loss_objectness", "loss_rpn_box_reg", "loss_classifier", "loss_box_reg"} | (
        {"loss_mask"} if masks else set()
    )
    sum(losses.values()).backward()
    without = [key for key, value in detector.named_parameters() if value.grad is None]
    assert not without
    with torch.no_grad():
        found = detector.eval()(images)
    for detection, (height, width) in zip(found, [(64, 96), (80, 64)], strict=True):
        count = len(detection["scores"])
        assert 0 < count <= 100
        assert detection["boxes"].shape == (count, 4)
        assert (detection["boxes"] >= 0).all()
        assert (detection["boxes"][:, 2] <= width).all() and (detection["boxes"][:, 3] <= height).all()
        assert detection["labels"].min() >= 1 and detection["labels"].max() <= 3
        assert not masks or detection["masks"].shape == (count, 1, height, width)


@pytest.mark.parametrize("name", ["timm:test_efficientnet", "timm:test_convnext", "timm:test_vit"])
def test_a_step_reaches_all_stages_of_a_timm_network_and_a_test_gives_detections(name: str) -> None:
    torch.manual_seed(0)
    net = build_backbone(name)
    detector = build_detector(net, DetectorConfig(kind="fpn", min_score=0.0, **SMALL), 3, masks=True)
    images, targets = scene(masks=True)
    sum(detector.train()(images, Truth(targets)).values()).backward()
    without = {key.partition(".")[0] for key, value in net.named_parameters() if value.grad is None}
    assert without <= {"conv_head", "bn2", "head", "norm"}  # layers behind the last map
    with torch.no_grad():
        found = detector.eval()(images)
    for detection, (height, width) in zip(found, [(64, 96), (80, 64)], strict=True):
        assert 0 < len(detection["scores"]) <= 100
        assert (detection["boxes"][:, 2] <= width).all() and (detection["boxes"][:, 3] <= height).all()
        assert detection["masks"].shape == (len(detection["scores"]), 1, height, width)
    assert detector.transform.image_mean == list(normalization(net).mean)


@pytest.mark.parametrize(("name", "side"), [("timm:test_vit", 96), ("timm:eva02_tiny_patch14_224", 96)])
def test_the_pyramid_of_a_vit_has_strides_of_4_to_32_and_lies_where_the_image_does(name: str, side: int) -> None:
    """Patches of 14 pixels do not divide the image; their grid reaches beyond it."""
    net = build_backbone(name)
    assert pyramid_strides(net) == [4, 8, 16, 32]
    pyramid = PyramidBackbone(net, 16).eval()
    maps = pyramid(torch.zeros(1, 3, side, side))
    assert [fmap.shape[-1] for fmap in maps.values()] == [side // 4, side // 8, side // 16, side // 32, -(-side // 64)]


def test_c4_refuses_a_network_without_the_stages_of_a_resnet() -> None:
    with pytest.raises(CsmlError, match=r"detector\.kind: c4 needs a ResNet .* choose fpn"):
        build_detector(build_backbone("timm:test_vit"), DetectorConfig(**SMALL), 3, masks=False)


@pytest.mark.parametrize("kind", ["c4", "fpn"])
def test_boxes_keep_their_precision_in_bf16(kind: str) -> None:
    torch.manual_seed(0)
    config = DetectorConfig(kind=kind, min_score=0.0, **SMALL)
    detector = build_detector(build_backbone("tiny"), config, 3, masks=kind == "fpn")
    images, targets = scene(masks=kind == "fpn")
    with torch.autocast("cpu", torch.bfloat16):
        losses = detector.train()(images, Truth(targets))
        assert torch.isfinite(torch.stack([value.float() for value in losses.values()])).all()
        with torch.no_grad():
            found = detector.eval()(images)
    boxes = torch.cat([detection["boxes"] for detection in found])
    assert boxes.dtype == torch.float32
    inside = boxes[(boxes > 32) & (boxes < 63)]  # bf16 has steps of a quarter there
    assert not torch.equal(inside, inside.bfloat16().float())


def test_a_picture_of_any_size_is_resized_and_boxes_are_given_in_its_pixels() -> None:
    torch.manual_seed(0)
    detector = build_detector(build_backbone("tiny"), DetectorConfig(min_score=0.0, **SMALL), 3, masks=False).eval()
    large = (torch.rand(3, 256, 384) * 255).byte()
    small = torch.nn.functional.interpolate(large[None].float() / 255, (64, 96), mode="bilinear", antialias=True)[0]
    with torch.no_grad():
        (expected,) = detector([small])
        detector.sides = (64, 200)
        (found,) = detector([large])
    torch.testing.assert_close(found["boxes"], 4 * expected["boxes"])


def test_c4_proposes_on_stage_3_and_looks_with_stage_4_and_one_more_norm() -> None:
    net = build_backbone("resnet50")
    detector = build_detector(net, DetectorConfig(), classes=20, masks=False)
    maps = detector.backbone(torch.zeros(1, 3, 64, 96))
    assert {name: tuple(fmap.shape) for name, fmap in maps.items()} == {"stage3": (1, 1024, 4, 6)}
    assert detector.rpn.head.conv[0][0].in_channels == 1024
    assert detector.rpn.head.cls_logits.out_channels == 15
    head = detector.roi_heads.box_head
    assert isinstance(head, C4Head) and isinstance(head.norm, nn.BatchNorm2d) and head.norm.num_features == 2048
    assert head(torch.zeros(2, 1024, 14, 14)).shape == (2, 2048)
    assert detector.roi_heads.box_predictor.cls_score.weight.shape == (21, 2048)
    assert all(p.requires_grad for p in detector.parameters())
    assert (detector.rpn._pre_nms_top_n, detector.rpn._post_nms_top_n) == (
        {"training": 12_000, "testing": 6000}, {"training": 2000, "testing": 1000},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "small_images", "stride"), [("resnet50", False, 16), ("resnet18", True, 4), ("tiny", False, 8)]
)
def test_proposals_are_cut_where_they_lie(name: str, small_images: bool, stride: int) -> None:
    strides = stage_strides(build_backbone(name, small_images))
    assert strides[3] == stride
    columns = torch.arange(16.0).expand(1, 1, 16, 16)  # a map whose value is its column
    box = torch.tensor([[4.0 * stride, 0, 8.0 * stride, 4.0 * stride]])  # columns 4 to 8, centre 6
    cut = C4Pool(stride, 4)({"stage3": columns}, [box], None)
    assert cut.mean().item() == pytest.approx(5.5)  # column 5 reaches from 5 to 6, and its middle is 5.5 on the axis


def test_a_pyramid_gives_boxes_to_levels_by_size() -> None:
    detector = build_detector(build_backbone("resnet18"), DetectorConfig(kind="fpn"), classes=2, masks=True)
    maps = detector.backbone(torch.zeros(1, 3, 256, 256))
    assert [fmap.shape[-1] for fmap in maps.values()] == [64, 32, 16, 8, 4]
    pool = detector.roi_heads.box_roi_pool
    assert pool.featmap_names == ["stage1", "stage2", "stage3", "stage4"]
    assert (pool.canonical_scale, pool.canonical_level) == (224, 4)
    small = build_detector(
        build_backbone("tiny"), DetectorConfig(kind="fpn", anchors=(16, 32, 64, 128, 256)), 2, masks=False
    )
    pool = small.roi_heads.box_roi_pool  # strides 2, 4, 8, 16: everything is half as large
    assert (pool.canonical_scale, pool.canonical_level) == (112, 3)


def test_a_detector_learns_one_picture_by_heart() -> None:
    torch.manual_seed(0)
    config = DetectorConfig(kind="fpn", **{**SMALL, "rois": 64, "proposals": 50, "head_width": 128})
    detector: Detector = build_detector(build_backbone("tiny"), config, classes=3, masks=True)
    image = torch.full((3, 96, 96), 0.5)
    image[0, 10:50, 10:50], image[2, 40:80, 55:90] = 1.0, 1.0
    target = {"boxes": torch.tensor([[10.0, 10, 50, 50], [55, 40, 90, 80]]), "labels": torch.tensor([1, 2])}
    target["masks"] = torch.zeros(2, 96, 96, dtype=torch.uint8)
    target["masks"][0, 10:50, 10:50] = target["masks"][1, 40:80, 55:90] = 1
    steps = 120
    optimizer = torch.optim.Adam(detector.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.005, steps)
    for _ in range(steps):
        loss = sum(detector.train()([image], Truth([target])).values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        (found,) = detector.eval()([image])
    best = {int(label): row for row, label in reversed(list(enumerate(found["labels"].tolist())))}
    # Worst of 18 runs (10 seeds; 5 of them also without AVX, 3 with two threads): score 0.950, box 0.724, mask 0.742.
    for label, box, mask in zip((1, 2), target["boxes"], target["masks"], strict=True):
        row = best[label]
        assert found["scores"][row] > 0.5
        assert box_iou(found["boxes"][row : row + 1], box[None]).item() > 0.5  # untrained: 0
        overlap = ((found["masks"][row, 0] > 0.5) & (mask > 0)).sum() / (
            (found["masks"][row, 0] > 0.5) | (mask > 0)
        ).sum()
        assert overlap > 0.5
