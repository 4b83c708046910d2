"""timm's networks as backbones, one or two small ones of every family, beside our own and torchvision's."""

import copy

import pytest
import timm
import torch
from torch import Tensor

from csml.config import STAGES
from csml.errors import CsmlError
from csml.models import Encoder, FeatureNet, build_backbone
from csml.models.backbones import (
    Backbone,
    feature_channels,
    normalization,
    stage_channels,
    stage_outputs,
    stage_strides,
)
from csml.models.freezing import freeze_stages

CHANNELS = {
    "nano": (16, 32, 64, 128),
    "resnet18": (64, 128, 256, 512),
    "timm:test_resnet": (32, 48, 192, 96),
    "timm:resnet10t": (64, 128, 256, 512),
    "timm:resnext26ts": (256, 512, 1024, 2048),
    "timm:regnety_002": (24, 56, 152, 368),
    "timm:tf_efficientnet_lite0": (24, 40, 112, 320),
    "timm:test_efficientnet": (24, 32, 48, 64),
    "timm:mobilenetv3_small_050": (8, 16, 24, 288),
    "timm:test_convnext": (24, 32, 48, 64),
    "timm:convnext_atto": (40, 80, 160, 320),
    "timm:convnextv2_atto": (40, 80, 160, 320),
    "timm:swin_tiny_patch4_window7_224": (96, 192, 384, 768),
    "timm:test_vit": (64, 64, 64, 64),
    "timm:vit_tiny_patch16_224": (192, 192, 192, 192),
    "timm:eva02_tiny_patch14_224": (192, 192, 192, 192),
}
"""Channels of the four stages, as the papers and timm's model cards have them."""
PATCH = {"timm:test_vit": 16, "timm:vit_tiny_patch16_224": 16, "timm:eva02_tiny_patch14_224": 14}
"""Networks of one resolution, and the side of their patches."""
NO_BATCHNORM = ["timm:test_convnext", "timm:swin_tiny_patch4_window7_224", "timm:test_vit"]
TIMM_NAMES = [name for name in CHANNELS if name.startswith("timm:")]

_built: dict[str, Backbone] = {}


def built(name: str) -> Backbone:
    """A network of its own; those that take long are built once and copied."""
    if name not in _built:
        torch.manual_seed(0)
        _built[name] = build_backbone(name)
    return copy.deepcopy(_built[name])


def images(side: int, batch: int = 2) -> Tensor:
    return torch.rand(batch, 3, side, side, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", CHANNELS)
def test_the_four_stages_have_the_channels_and_strides_of_their_family(name: str) -> None:
    net = built(name)
    strides = (PATCH[name],) * 4 if name in PATCH else (2, 4, 8, 16) if name == "nano" else (4, 8, 16, 32)
    assert tuple(stage_channels(net).values()) == CHANNELS[name]
    assert tuple(stage_strides(net).values()) == strides
    side = 56 if strides[0] == 14 else 64
    with torch.no_grad():
        maps = stage_outputs(net.eval(), images(side)).maps
    assert list(maps) == list(STAGES)
    for stage, fmap in maps.items():
        cells = side // strides[stage - 1]
        assert fmap.shape == (2, CHANNELS[name][stage - 1], cells, cells)


@pytest.mark.parametrize("name", TIMM_NAMES)
def test_the_feature_is_what_timm_s_own_forward_returns(name: str) -> None:
    net = built(name).eval()
    theirs = timm.create_model(name.removeprefix("timm:"), num_classes=0, **({"img_size": 64} if name in PATCH else {}))
    side = 56 if PATCH.get(name) == 14 else 64
    with torch.no_grad():
        outputs = stage_outputs(net, images(side))
        torch.testing.assert_close(outputs.feature, net(images(side)))
        torch.testing.assert_close(FeatureNet(net)(images(side))[4], net(images(side)))
    assert outputs.feature.shape[1] == theirs.head_hidden_size == feature_channels(net)[4]


@pytest.mark.parametrize("name", ["timm:test_resnet", "timm:test_efficientnet", "timm:test_convnext", "timm:test_vit"])
def test_at_its_own_size_a_network_computes_what_a_plain_timm_network_does(name: str) -> None:
    net, theirs = built(name).eval(), timm.create_model(name.removeprefix("timm:"), num_classes=0).eval()
    theirs.load_state_dict(net.state_dict())
    side = theirs.pretrained_cfg["input_size"][1]
    with torch.no_grad():
        torch.testing.assert_close(stage_outputs(net, images(side)).feature, theirs(images(side)))


@pytest.mark.parametrize("name", CHANNELS)
@pytest.mark.parametrize("side", [32, 96, 100])
def test_images_of_any_size_give_maps_and_the_same_number_of_features(name: str, side: int) -> None:
    net = built(name).eval()
    with torch.no_grad():
        maps, feature = stage_outputs(net, images(side, batch=1))
    assert feature.shape == (1, feature_channels(net)[4])
    assert torch.isfinite(feature).all()
    for stage, stride in stage_strides(net).items():
        assert maps[stage].shape[-1] in (side // stride, -(-side // stride))


def test_the_stages_of_a_vit_are_its_blocks_at_each_quarter() -> None:
    net, x = built("timm:vit_tiny_patch16_224").eval(), images(32)
    found: list[Tensor] = []
    for block in net.blocks:
        block.register_forward_hook(lambda module, args, output: found.append(output))
    with torch.no_grad():
        maps = stage_outputs(net, x).maps
        for stage, block in {1: 2, 2: 5, 3: 8, 4: 11}.items():
            tokens = found[block][:, 1:].transpose(1, 2).unflatten(2, (2, 2))  # without the class token
            torch.testing.assert_close(maps[stage], tokens)


@pytest.mark.parametrize("name", CHANNELS)
def test_the_loss_of_every_level_reaches_the_backbone(name: str) -> None:
    encoder = Encoder(built(name), (2, 3, 4), dim=8, hidden=16)
    embeddings = encoder(images(32, batch=3))
    for stage in (2, 3, 4):
        assert embeddings[stage].shape == (3, 8)
        torch.testing.assert_close(embeddings[stage].norm(dim=1), torch.ones(3))
        encoder.zero_grad()
        embeddings[stage][:, 0].sum().backward(retain_graph=True)
        first = next(encoder.backbone.parameters() if name not in PATCH else encoder.backbone.patch_embed.parameters())
        assert first.grad is not None and first.grad.abs().sum() > 0


FROZEN = {
    "nano": ("conv1", "bn1", "layer1", "layer2"),
    "timm:resnet10t": ("conv1", "bn1", "layer1", "layer2"),
    "timm:regnety_002": ("stem", "s1", "s2"),
    "timm:tf_efficientnet_lite0": ("conv_stem", "bn1", "blocks.0", "blocks.1", "blocks.2"),
    "timm:mobilenetv3_small_050": ("conv_stem", "bn1", "blocks.0", "blocks.1"),
    "timm:convnext_atto": ("stem", "stages.0", "stages.1"),
    "timm:swin_tiny_patch4_window7_224": ("patch_embed", "layers.0", "layers.1"),
    "timm:test_vit": ("cls_token", "pos_embed", "patch_embed", "norm_pre", "blocks.0", "blocks.1", "blocks.2"),
}
"""What lies before the end of the second stage."""


@pytest.mark.parametrize("name", FROZEN)
def test_frozen_stages_and_all_before_them_do_not_change_and_the_others_do(name: str) -> None:
    net = built(name)
    freeze_stages(net, 2)
    frozen = {key for key, parameter in net.named_parameters() if not parameter.requires_grad}
    wanted = {key for key, _ in net.named_parameters() if key.startswith(tuple(f"{part}." for part in FROZEN[name]))}
    wanted |= {key for key, _ in net.named_parameters() if key in FROZEN[name]}
    assert frozen == wanted
    before = {key: parameter.clone() for key, parameter in net.named_parameters()}
    encoder = Encoder(net, (4,), dim=8, hidden=16, fixed_batchnorm=True).train()
    optimizer = torch.optim.SGD([p for p in encoder.parameters() if p.requires_grad], lr=1.0)
    encoder(images(32, batch=3))[4][:, 0].sum().backward()
    optimizer.step()
    changed = {key for key, parameter in net.named_parameters() if not torch.equal(parameter, before[key])}
    assert not changed & frozen
    assert changed


@pytest.mark.parametrize("name", NO_BATCHNORM)
def test_there_is_no_dropout(name: str) -> None:
    """It would draw from a generator that a checkpoint does not have; timm's Swin has it by default."""
    net = built(name).train()
    torch.testing.assert_close(net(images(32)), net(images(32)), atol=0, rtol=0)


@pytest.mark.parametrize(
    ("name", "mean"),
    [("nano", 0.485), ("timm:resnet10t", 0.485), ("timm:tf_efficientnet_lite0", 0.5), ("timm:test_vit", 0.5)],
)
def test_a_network_knows_the_normalisation_of_its_images(name: str, mean: float) -> None:
    assert normalization(built(name)).mean[0] == mean


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("timm:tf_efficientnet_lite_0", "did you mean timm:tf_efficientnet_lite"),
        ("timm:test_nfnet", "does not give the feature maps of four stages"),
    ],
)
def test_networks_that_do_not_fit_are_refused_in_one_line(name: str, message: str) -> None:
    with pytest.raises(CsmlError, match=message):
        build_backbone(name)
    with pytest.raises(CsmlError, match="small_images"):
        build_backbone("timm:test_vit", small_images=True)
