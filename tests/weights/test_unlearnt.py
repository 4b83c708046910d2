"""`pixels` and `random:NAME` in the place of weights."""

from pathlib import Path

import pytest
import torch

from conftest import configured
from csml.config import is_weight_name
from csml.errors import CsmlError
from csml.models.backbones import FeatureNet, feature_channels, image_channels, normalization
from csml.runs.run_of_weights import result_file
from csml.runs.settings import trained_with
from csml.weights import load_backbone, network_of, weights_digest


def test_the_feature_of_pixels_is_the_picture() -> None:
    net = load_backbone("pixels")
    small, large = torch.rand(2, 3, 32, 32), torch.rand(2, 3, 64, 64)
    assert torch.equal(net(small), small.flatten(1))
    torch.testing.assert_close(net(large), large.unfold(2, 2, 2).unfold(3, 2, 2).mean(dim=(4, 5)).flatten(1))
    pooled = FeatureNet(net, (1, 4))(large)
    assert {stage: values.shape[1] for stage, values in pooled.items()} == {1: 3, 4: 3072}
    assert feature_channels(net)[4] == 3072


def test_an_untrained_network_is_the_same_every_time_and_leaves_torch_alone() -> None:
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    one, two = load_backbone("random:nano"), load_backbone("random:nano")
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert network_of("random").backbone == "resnet18"
    assert network_of("random:timm:resnet10t").backbone == "timm:resnet10t"


@pytest.mark.parametrize("name", ["pixels", "random:nano", "lite0"])
def test_named_weights_see_as_many_channels_as_the_images_have(name: str) -> None:
    net, images = load_backbone(name, channels=5), torch.rand(2, 5, 32, 32)
    assert net(images).shape[1] == feature_channels(net)[4] and image_channels(net) == 5
    assert len(normalization(net).mean) == 5


def test_names_have_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pixels").mkdir()
    (tmp_path / "pixels" / "config.yaml").write_text("images: {size: 99}\n")
    assert trained_with(Path("pixels")) == {"images.size": 32, "images.eval_crop": 1.0}
    assert configured("knn", "pixels", "--data", "synthetic").images.size == 32
    assert result_file("timm:resnet18.a1", "knn") == Path("knn-timm-resnet18.a1.json")
    assert result_file("pixels/backbone.safetensors", "knn") == Path("pixels/knn.json")
    assert weights_digest("pixels") != weights_digest("random") != weights_digest("random:nano")
    assert not is_weight_name("./pixels")


def test_what_has_learnt_nothing_is_no_start() -> None:
    for name in ("pixels", "random", "random:nano"):
        with pytest.raises(CsmlError, match=r"model\.weights: .*leave it out to start from scratch"):
            configured("pretrain", "--model.weights", name)
    with pytest.raises(CsmlError, match="pixels are not a network"):
        network_of("pixels")
    with pytest.raises(CsmlError, match=r"weights: backbone: .* not resnet7"):
        network_of("random:resnet7")
