"""Every backbone by name: the same four stages, asked for in the same way."""

import pytest
import torch
import torchvision
from torchvision.models.resnet import ResNet

from csml.config import BACKBONES
from csml.models import Encoder, FeatureNet, build_backbone, stage_maps
from csml.models.backbones import feature_channels, image_channels, normalization, stage_channels, weights_key

LARGE = {"resnet101", "resnet152", "resnext101_32x8d", "resnext101_64x4d", "wide_resnet101_2", "wide_resnet50_2"}


@pytest.mark.parametrize("name", [name for name in BACKBONES if name not in LARGE])
@pytest.mark.parametrize("small_images", [False, True])
def test_four_stages_each_half_the_side_of_the_one_before(name: str, small_images: bool) -> None:
    with torch.device("meta"), torch.no_grad():  # only shapes count
        net = build_backbone(name, small_images).eval()
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


def companion_shapes(backbone: ResNet, stage: int, narrowing: int | None = None) -> list[tuple[int, ...]]:
    head = Encoder(backbone, (2, 3, 4), dim=128, hidden=None, narrowing=narrowing).heads[str(stage)]
    return [tuple(m.weight.shape) for m in head.modules() if isinstance(m, torch.nn.Conv2d)]


@pytest.mark.parametrize("stage", [2, 3])
def test_a_companion_head_is_a_bottleneck_with_the_channels_of_its_stage(stage: int) -> None:
    resnet50, resnet18 = build_backbone("resnet50"), build_backbone("resnet18")
    block = getattr(resnet50, f"layer{stage}")[-1]
    own = [tuple(m.weight.shape) for m in block.modules() if isinstance(m, torch.nn.Conv2d)]
    assert companion_shapes(resnet50, stage) == own
    c = {2: 128, 3: 256}[stage]
    assert companion_shapes(resnet18, stage) == [(c, c, 1, 1), (c, c, 3, 3), (c, c, 1, 1)]
    h = c // 2
    assert companion_shapes(resnet18, stage, narrowing=2) == [(h, c, 1, 1), (h, h, 3, 3), (c, h, 1, 1)]


def test_the_last_stage_gets_an_mlp_as_wide_as_itself() -> None:
    encoder = Encoder(build_backbone("resnet50"), (4,), dim=128, hidden=None)
    layers = [m for m in encoder.heads["4"].modules() if isinstance(m, torch.nn.Linear)]
    assert [(layer.in_features, layer.out_features) for layer in layers] == [(2048, 2048), (2048, 128)]


@pytest.mark.parametrize("name", ["nano", "timm:test_vit"])
@pytest.mark.parametrize("channels", [1, 5])
def test_networks_take_images_of_any_number_of_channels(name: str, channels: int) -> None:
    net = build_backbone(name, channels=channels).eval()
    assert image_channels(net) == channels
    assert normalization(net) == ((0.5,) * channels, (0.25,) * channels)
    assert FeatureNet(net)(torch.zeros(2, channels, 64, 64))[4].shape == (2, feature_channels(net)[4])


def test_the_key_of_weights_changes_with_the_weights_alone() -> None:
    """Features are kept under it: neither the layout in memory nor the number of threads may change it."""
    net = build_backbone("tiny", True)
    key = weights_key(net)
    assert weights_key(net.to(memory_format=torch.channels_last)) == key
    with torch.no_grad():
        next(iter(net.parameters())).mul_(1.0001)
    assert weights_key(net) != key
