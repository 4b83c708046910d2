"""Every backbone by name: the same four stages, asked for in the same way."""

import pytest
import torch
import torchvision

from csml.models import BACKBONES, Encoder, FeatureNet, build_backbone, stage_maps
from csml.models.backbones import stage_channels

LARGE = {"resnet101", "resnet152", "resnext101_32x8d", "resnext101_64x4d", "wide_resnet101_2", "wide_resnet50_2"}


@pytest.mark.parametrize("name", [name for name in BACKBONES if name not in LARGE])
@pytest.mark.parametrize("small_images", [False, True])
def test_four_stages_each_half_the_side_of_the_one_before(name: str, small_images: bool) -> None:
    net = build_backbone(name, small_images).eval()
    with torch.no_grad():
        maps = stage_maps(net, torch.rand(2, 3, 64, 64))
        features = net(torch.rand(2, 3, 64, 64))
    assert list(maps) == [1, 2, 3, 4]
    assert [maps[s].shape[-1] * 2 for s in (2, 3, 4)] == [maps[s].shape[-1] for s in (1, 2, 3)]
    assert {s: m.shape[1] for s, m in maps.items()} == stage_channels(net)
    assert features.shape == (2, maps[4].shape[1])


@pytest.mark.parametrize("name", sorted(LARGE))
def test_large_backbones_are_torchvision_s(name: str) -> None:
    with torch.device("meta"):
        ours = build_backbone(name).state_dict()
        theirs = getattr(torchvision.models, name)(weights=None).state_dict()
    assert {k: v.shape for k, v in ours.items()} == {k: v.shape for k, v in theirs.items() if not k.startswith("fc.")}


@pytest.mark.parametrize("name", ["tiny", "resnet18", "resnet50"])
def test_pooled_last_stage_is_what_the_network_returns(name: str) -> None:
    net = build_backbone(name).eval()
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(FeatureNet(net)(images)[4], net(images))


def test_torchvision_weights_fit_by_name() -> None:
    theirs = torchvision.models.resnet18(weights=None)
    result = build_backbone("resnet18").load_state_dict(theirs.state_dict(), strict=False)
    assert result.missing_keys == []
    assert result.unexpected_keys == ["fc.weight", "fc.bias"]


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="resnet18"):
        build_backbone("resnet19")


@pytest.mark.parametrize("stages", [(4,), (3, 4), (2, 3, 4), (1, 2, 3, 4)])
def test_an_encoder_gives_one_unit_vector_per_level(stages: tuple[int, ...]) -> None:
    encoder = Encoder(build_backbone("tiny"), stages, dim=16, hidden=None)
    embeddings = encoder(torch.rand(3, 3, 32, 32))
    assert tuple(embeddings) == stages
    for embedding in embeddings.values():
        assert embedding.shape == (3, 16)
        torch.testing.assert_close(embedding.norm(dim=1), torch.ones(3))


def test_a_companion_head_is_a_bottleneck_with_the_stage_s_channels() -> None:
    """Shaped as the blocks of its stage are in a ResNet-50."""
    backbone = build_backbone("resnet50")
    encoder = Encoder(backbone, (2, 3, 4), dim=128, hidden=None)
    for stage, block in ((2, backbone.layer2[-1]), (3, backbone.layer3[-1])):
        ours, theirs = (
            [tuple(m.weight.shape) for m in part.modules() if isinstance(m, torch.nn.Conv2d)]
            for part in (encoder.heads[str(stage)], block)
        )
        assert ours == theirs
    layers = [m for m in encoder.heads["4"].modules() if isinstance(m, torch.nn.Linear)]
    assert [(layer.in_features, layer.out_features) for layer in layers] == [(2048, 2048), (2048, 128)]
